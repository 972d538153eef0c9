from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from penstock.base.threads import track_work
from penstock.errors import SourceTimeoutError
from penstock.scheduler.adaptive_batch import check_source_timeouts

# A module whose name is that of the bridge to the JVM.
BRIDGE = {"__name__": "py4j.clientserver"}
exec("def send_command(wait):\n    wait()", BRIDGE)


def directly(wait: Any) -> None:
    wait()


def through_the_bridge(wait: Any) -> None:
    BRIDGE["send_command"](wait)


CASES = {
    "a source": ("penstock-j1-source-0", "orders", directly, True),
    "a source that waits for Spark": ("penstock-j1-source-0", "orders", through_the_bridge, False),
    "work without a source": ("penstock-j1-vertex-0", "", directly, False),
    "a source of another job": ("penstock-j2-source-0", "orders", directly, False),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES)
def test_sources_that_do_not_answer(case: str) -> None:
    name, asks, call, times_out = CASES[case]
    free, running = threading.Event(), threading.Event()

    def run() -> None:
        with track_work("asking orders for its splits", asks):
            call(lambda: (running.set(), free.wait(20)))

    thread = threading.Thread(target=run, name=name)
    thread.start()
    assert running.wait(5)
    message = None
    deadline = time.monotonic() + 1.5
    while message is None and time.monotonic() < deadline:
        try:
            check_source_timeouts("penstock-j1", 0.6)
        except SourceTimeoutError as error:
            message = str(error)
        time.sleep(0.1)
    assert (message is not None) is times_out
    if message is not None:
        assert "orders has not answered for 0.6 s\n  cause: asking orders for its splits" in message
        assert "sources.timeout" in message
    free.set()
    thread.join(5)
