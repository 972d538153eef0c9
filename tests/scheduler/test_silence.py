from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from penstock.errors import SourceTimeoutError
from penstock.scheduler.silence import check_silence
from penstock.threads import doing

# A function of the bridge to the JVM, as far as its module's name tells.
BRIDGE = {"__name__": "py4j.clientserver"}
exec("def send_command(wait):\n    wait()", BRIDGE)


def straight(wait: Any) -> None:
    wait()


def through_the_bridge(wait: Any) -> None:
    BRIDGE["send_command"](wait)


CASES = {
    "a source": ("penstock-j1-source-0", "orders", straight, True),
    "a source that waits for Spark": ("penstock-j1-source-0", "orders", through_the_bridge, False),
    "work that asks nobody": ("penstock-j1-vertex-0", "", straight, False),
    "a source of another job": ("penstock-j2-source-0", "orders", straight, False),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES)
def test_who_does_not_answer(case: str) -> None:
    name, asks, call, is_found = CASES[case]
    free, came = threading.Event(), threading.Event()

    def run() -> None:
        with doing("asking orders for its splits", asks):
            call(lambda: (came.set(), free.wait(20)))

    thread = threading.Thread(target=run, name=name)
    thread.start()
    assert came.wait(5)
    found = None
    until = time.monotonic() + 1.5
    while found is None and time.monotonic() < until:
        try:
            check_silence("penstock-j1", 0.6)
        except SourceTimeoutError as error:
            found = str(error)
        time.sleep(0.1)
    assert (found is not None) is is_found
    if is_found:
        assert "orders has not answered for 0.6 s\n  cause: asking orders for its splits" in found
        assert "sources.timeout" in found
    free.set()
    thread.join(5)
