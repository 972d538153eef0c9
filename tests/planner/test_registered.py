from __future__ import annotations

import threading
from typing import Any

from penstock.planner.outputs import RegisteredOutputs


def in_thread(call: Any) -> Any:
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def test_a_thread_takes_its_own_outputs() -> None:
    registered = RegisteredOutputs()
    registered.add(["mine"])
    assert in_thread(lambda: (registered.add(["yours", "yours too"]), registered.take())[1]) == ["yours", "yours too"]
    assert registered.peek() == ["mine"]
    assert registered.take() == ["mine"]
    assert registered.take() == []


def test_a_thread_without_outputs_takes_all() -> None:
    registered = RegisteredOutputs()
    registered.add(["first", "second"])
    assert in_thread(registered.take) == ["first", "second"]
    assert registered.peek() == []


def test_equal_outputs_of_two_threads_are_distinct() -> None:
    registered = RegisteredOutputs()
    registered.add(["same"])
    assert in_thread(lambda: (registered.add(["same"]), registered.take())[1]) == ["same"]
    assert registered.take() == ["same"]
