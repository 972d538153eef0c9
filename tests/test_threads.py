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

from penstock.threads import DaemonPool, answer_within, doing, works
from tests.silence import Silent, ask


def busily(until: Any) -> None:
    while not until.is_set():
        sum(range(1000))


def in_pieces(until: Any) -> None:
    while not until.wait(0.02):
        pass


WAYS = {
    "a sleep": (lambda until: until.wait(), True),
    "a socket": (lambda until: ask_silent(until), True),
    "work": (busily, False),
    "work with pauses": (in_pieces, False),
}


def ask_silent(until: Any) -> None:
    with Silent() as server:
        threading.Thread(target=lambda: (until.wait(), server.close())).start()
        with suppress(ConnectionError):
            ask(server.port)


@pytest.mark.parametrize("way", WAYS)
def test_who_only_waits_is_silent(way: str) -> None:
    call, is_silent = WAYS[way]
    until, ready = threading.Event(), threading.Event()

    def run() -> None:
        with doing("its parallelism", "orders"):
            ready.set()
            call(until)

    thread = threading.Thread(target=run, name=f"silent-{way}")
    thread.start()
    ready.wait()
    time.sleep(0.2)
    (work,) = works(f"silent-{way}")
    work.silent_for(lambda _: False)
    time.sleep(0.5)
    silent = work.silent_for(lambda _: False)
    assert (silent >= 0.4) is is_silent
    assert work.silent_for(lambda _: True) < 0.1
    assert str(work) == f"its parallelism (thread silent-{way})"
    until.set()
    thread.join(5)
    assert works(f"silent-{way}") == []
    assert work.silent_for(lambda _: False) == 0


def test_the_innermost_work_of_a_thread_counts() -> None:
    with doing("outer"), doing("inner"):
        assert [work.what for work in works(threading.current_thread().name)] == ["inner"]


def test_a_call_that_only_waits_is_given_up_and_one_that_works_is_not() -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="asking"):
        answer_within(0.4, "asking", "orders", lambda: time.sleep(60))
    assert time.monotonic() - started < 2

    def long() -> int:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            sum(range(1000))
        return 7

    assert answer_within(0.4, "asking", "orders", long) == 7


def test_a_call_raises_its_own_error() -> None:
    def raises() -> Never:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        answer_within(5, "asking", "orders", raises)


def test_a_pool_runs_side_by_side_up_to_its_limit() -> None:
    pool = DaemonPool(3, "pool")
    going, free = [], threading.Event()

    def run(number: Any) -> Any:
        going.append(number)
        free.wait(5)
        return number

    futures = [pool.submit(run, number) for number in range(7)]
    time.sleep(0.2)
    assert sorted(going) == [0, 1, 2]
    free.set()
    assert [future.result(5) for future in futures] == list(range(7))
    assert pool.submit(run, 8).result(5) == 8
    pool.shutdown()
    with pytest.raises(RuntimeError):
        pool.submit(run, 9)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pool-")]


def test_a_pool_gives_errors_and_context_and_cancels_what_waits() -> None:
    variable = ContextVar("variable", default="")
    pool = DaemonPool(1, "pool")
    variable.set("of who submits")
    assert pool.submit(variable.get).result(5) == "of who submits"
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


def test_work_that_a_pool_has_cancelled_is_not_waited_for() -> None:
    pool, may_end = DaemonPool(1, "t"), threading.Event()
    found = [pool.submit(may_end.wait) for _ in range(3)]
    while not found[0].running():
        time.sleep(0.01)
    pool.shutdown(wait=False, cancel_futures=True)
    may_end.set()
    assert not wait(found, 5).not_done
    assert [one.cancelled() for one in found] == [False, True, True]


def test_the_process_ends_without_threads_that_hang() -> None:
    program = (
        "import time; from penstock.threads import DaemonPool; DaemonPool(1, 'p').submit(time.sleep, 60); print('end')"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "end\n"
    assert time.monotonic() - started < 20


AT_END = """
import threading, time
from penstock.threads import call_at_end
call_at_end(lambda: print("end", flush=True))
other = threading.Thread(target=lambda: (threading.main_thread().join(), time.sleep(0.3), print("other", flush=True)))
other.start()
{more}
print("main", flush=True)
"""
JOINS_ALL = """
own = threading.main_thread()
for one in threading.enumerate():
    if one not in {own, other} and not one.daemon:
        one.join()
"""


@pytest.mark.parametrize("more", ["", JOINS_ALL], ids=["waits for the main thread", "joins all threads"])
def test_a_call_at_the_end(more: str) -> None:
    command = [sys.executable, "-c", AT_END.format(more=more)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert re.match(r"main\s*other\s*end", done.stdout)
    assert done.stderr == ""
