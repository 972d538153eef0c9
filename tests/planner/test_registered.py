from __future__ import annotations

import threading
from typing import Any

from penstock.planner.registered import Registered


def in_thread(call: Any) -> Any:
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def test_each_thread_takes_its_own() -> None:
    registered = Registered()
    registered.add(["mine"])
    assert in_thread(lambda: (registered.add(["yours", "yours too"]), registered.take())[1]) == ["yours", "yours too"]
    assert registered.look() == ["mine"]
    assert registered.take() == ["mine"]
    assert registered.take() == []


def test_a_thread_without_any_takes_all() -> None:
    registered = Registered()
    registered.add(["one", "two"])
    assert in_thread(registered.take) == ["one", "two"]
    assert registered.look() == []


def test_equal_outputs_of_two_threads_are_two() -> None:
    registered = Registered()
    registered.add(["same"])
    assert in_thread(lambda: (registered.add(["same"]), registered.take())[1]) == ["same"]
    assert registered.take() == ["same"]
