"""Python objects that plans refer to by number, and that live as long as the plans."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.spark.compiled import new_instance

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge

T = TypeVar("T")


class PlanLifetimeMap(Generic[T]):
    """Values by number, each retained until the JVM has released an object that all plans with the number share.

    Released entries are removed when the next value is added (``java/Lifetimes.java``).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[int, T] = {}
        self._application = ""
        self._watcher: Any = None

    def __len__(self) -> int:
        return len(self._values)

    def keep(self, bridge: Bridge, number: int, shared: Any, value: T) -> None:
        """Retain a value as long as the JVM object `shared` exists, which plans refer to."""
        with self._lock:
            application = str(bridge.spark.sparkContext.applicationId)
            if application != self._application:  # plans of a stopped application cannot run any more
                self._values.clear()
                self._application, self._watcher = application, new_instance(bridge, "Lifetimes", on_executors=False)
            self._values[number] = value
            for released in str(self._watcher.watch(shared, number)).split():
                self._values.pop(int(released), None)

    def get(self, number: int) -> T | None:
        """Return a value by its number, None if it has been released."""
        return self._values.get(number)
