from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from concurrent.futures import wait
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Never

import pytest

from penstock.base.threads import DaemonPool, call_with_timeout, running_work, track_work
from tests.support.silence import SilentServer, send_request


def compute(until: Any) -> None:
    while not until.is_set():
        sum(range(1000))


def with_pauses(until: Any) -> None:
    while not until.wait(0.02):
        pass


CALLS = {
    "a sleep": (lambda until: until.wait(), True),
    "a socket": (lambda until: ask_silent(until), True),
    "work": (compute, False),
    "work with pauses": (with_pauses, False),
}


def ask_silent(until: Any) -> None:
    with SilentServer() as server:
        threading.Thread(target=lambda: (until.wait(), server.close())).start()
        with suppress(ConnectionError):
            send_request(server.port)


@pytest.mark.parametrize("case", CALLS)
def test_only_waiting_calls_have_idle_seconds(case: str) -> None:
    call, is_idle = CALLS[case]
    until, ready = threading.Event(), threading.Event()

    def run() -> None:
        with track_work("its parallelism", "orders"):
            ready.set()
            call(until)

    thread = threading.Thread(target=run, name=f"silent-{case}")
    thread.start()
    ready.wait()
    time.sleep(0.2)
    (work,) = running_work(f"silent-{case}")
    work.idle_seconds(lambda _: False)
    time.sleep(0.5)
    idle = work.idle_seconds(lambda _: False)
    assert (idle >= 0.4) is is_idle
    assert work.idle_seconds(lambda _: True) < 0.1
    assert str(work) == f"its parallelism (thread silent-{case})"
    until.set()
    thread.join(5)
    assert running_work(f"silent-{case}") == []
    assert work.idle_seconds(lambda _: False) == 0


def test_running_work_is_the_innermost() -> None:
    with track_work("outer"), track_work("inner"):
        assert [work.description for work in running_work(threading.current_thread().name)] == ["inner"]


def test_only_idle_calls_time_out() -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="asking"):
        call_with_timeout(0.4, "asking", "orders", lambda: time.sleep(60))
    assert time.monotonic() - started < 2

    def compute_for_a_second() -> int:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            sum(range(1000))
        return 7

    assert call_with_timeout(0.4, "asking", "orders", compute_for_a_second) == 7


def test_a_call_raises_its_own_error() -> None:
    def raises() -> Never:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        call_with_timeout(5, "asking", "orders", raises)


def test_a_pool_runs_in_parallel_up_to_its_limit() -> None:
    pool = DaemonPool(3, "pool")
    started, free = [], threading.Event()

    def run(number: Any) -> Any:
        started.append(number)
        free.wait(5)
        return number

    futures = [pool.submit(run, number) for number in range(7)]
    time.sleep(0.2)
    assert sorted(started) == [0, 1, 2]
    free.set()
    assert [future.result(5) for future in futures] == list(range(7))
    assert pool.submit(run, 8).result(5) == 8
    pool.shutdown()
    with pytest.raises(RuntimeError):
        pool.submit(run, 9)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pool-")]


def test_a_pool_passes_errors_and_context_and_cancels_waiting_work() -> None:
    variable = ContextVar("variable", default="")
    pool = DaemonPool(1, "pool")
    variable.set("of the submitting thread")
    assert pool.submit(variable.get).result(5) == "of the submitting thread"
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result(5)
    free = threading.Event()
    running, waiting = pool.submit(free.wait), pool.submit(free.wait)
    while not running.running():
        time.sleep(0.01)
    pool.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    free.set()
    assert running.result(5)


def test_cancelled_work_of_a_pool_counts_as_done() -> None:
    pool, may_end = DaemonPool(1, "t"), threading.Event()
    futures = [pool.submit(may_end.wait) for _ in range(3)]
    while not futures[0].running():
        time.sleep(0.01)
    pool.shutdown(wait=False, cancel_futures=True)
    may_end.set()
    assert not wait(futures, 5).not_done
    assert [future.cancelled() for future in futures] == [False, True, True]


def test_the_process_ends_without_waiting_for_hanging_threads() -> None:
    program = "import time; from penstock.base.threads import DaemonPool; DaemonPool(1, 'p').submit(time.sleep, 60); print('end')"
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "end\n"
    assert time.monotonic() - started < 20


AT_END = """
import threading, time
from penstock.base.threads import call_at_exit
call_at_exit(lambda: print("end", flush=True))
other = threading.Thread(target=lambda: (threading.main_thread().join(), time.sleep(0.3), print("other", flush=True)))
other.start()
{more}
print("main", flush=True)
"""
JOINS_ALL = """
own = threading.main_thread()
for thread in threading.enumerate():
    if thread not in {own, other} and not thread.daemon:
        thread.join()
"""


@pytest.mark.parametrize("more", ["", JOINS_ALL], ids=["waits for the main thread", "joins all threads"])
def test_functions_run_at_exit_after_the_last_thread(more: str) -> None:
    command = [sys.executable, "-c", AT_END.format(more=more)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert re.match(r"main\s*other\s*end", done.stdout)
    assert done.stderr == ""
