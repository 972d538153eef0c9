"""Sinks that were registered and wait to be run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.planner.outputs import Output


class Registered:
    """What the threads of a program have registered; each takes its own, or all if it has none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outputs: list[tuple[threading.Thread, Output]] = []

    def add(self, outputs: Sequence[Output]) -> None:
        """Register outputs of the calling thread."""
        with self._lock:
            self._outputs += [(threading.current_thread(), output) for output in outputs]

    def look(self) -> list[Output]:
        """Return what the calling thread would take."""
        with self._lock:
            return [output for _, output in self._chosen()]

    def take(self) -> list[Output]:
        """Return what the calling thread has registered, or all if it has registered nothing; they wait no more."""
        with self._lock:
            chosen = self._chosen()
            taken = set(map(id, chosen))
            self._outputs = [one for one in self._outputs if id(one) not in taken]
            return [output for _, output in chosen]

    def _chosen(self) -> list[tuple[threading.Thread, Output]]:
        own = [one for one in self._outputs if one[0] is threading.current_thread()]
        return own or list(self._outputs)
