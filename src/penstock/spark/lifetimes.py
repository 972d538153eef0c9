"""Python objects that plans refer to by a number, and that live as long as the plans do."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.spark.compiled import new_instance

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge

T = TypeVar("T")


class KeptByPlans(Generic[T]):
    """Values by numbers; each is kept until the JVM has forgotten an object that all plans with the number share.

    What was forgotten is dropped when the next value comes (``java/Lifetimes.java``).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[int, T] = {}
        self._application = ""
        self._watcher: Any = None

    def __len__(self) -> int:
        return len(self._values)

    def keep(self, bridge: Bridge, number: int, shared: Any, value: T) -> None:
        """Keep a value as long as there is an object of the JVM, which a plan is about to get, or has."""
        with self._lock:
            application = str(bridge.spark.sparkContext.applicationId)
            if application != self._application:  # plans of one that was stopped cannot run any more
                self._values.clear()
                self._application, self._watcher = application, new_instance(bridge, "Lifetimes", on_executors=False)
            self._values[number] = value
            for gone in str(self._watcher.watch(shared, number)).split():
                self._values.pop(int(gone), None)

    def get(self, number: int) -> T | None:
        """Return a value, None if there is none of that number."""
        return self._values.get(number)
