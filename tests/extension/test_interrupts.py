"""Ctrl-C always interrupts the program, and no later cancellation stops its next query."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.extension import interrupts
from penstock.spark.bridge.waiting_call import WaitingCall


def fail() -> None:
    raise RuntimeError("the JVM is gone")


@pytest.fixture
def handled() -> Iterator[None]:
    previous = signal.signal(signal.SIGINT, interrupts._interrupt)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair()
    yield pair
    for end in pair:
        end.close()


def waits_on(monkeypatch: pytest.MonkeyPatch, end: socket.socket | None) -> None:
    connection = SimpleNamespace(socket=end, close=lambda: None)
    monkeypatch.setattr(WaitingCall, "of", lambda _: WaitingCall(connection))


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("cancel", [fail, lambda: None])
@pytest.mark.parametrize("state", ["no call", "closed", "gone"])
def test_an_interrupt_is_raised_after_any_error(
    monkeypatch: pytest.MonkeyPatch, sockets: tuple[socket.socket, Any], cancel: Callable[[], None], state: str
) -> None:
    monkeypatch.setattr(interrupts, "cancel_all", cancel)
    if state != "no call":
        sockets[0].close()
        waits_on(monkeypatch, sockets[0] if state == "closed" else None)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is interrupts._interrupt


@pytest.mark.usefixtures("handled")
def test_no_cancellation_runs_after_the_interrupt(
    monkeypatch: pytest.MonkeyPatch, sockets: tuple[socket.socket, socket.socket], capsys: pytest.CaptureFixture[str]
) -> None:
    running: list[str] = []

    def cancel() -> None:
        running.append("started")
        time.sleep(0.5)
        running.append("ended")

    monkeypatch.setattr(interrupts, "cancel_all", cancel)
    monkeypatch.setattr(interrupts, "_CANCEL_INTERVAL", 0.01)
    monkeypatch.setattr(interrupts, "_NOTICE_SECONDS", 0.1)
    waits_on(monkeypatch, sockets[0])
    threading.Timer(0.7, sockets[1].send, [b"!yv\n"]).start()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert running == ["started", "ended"] * 2
    assert "press Ctrl-C again" in capsys.readouterr().err
    time.sleep(0.1)
    assert len(running) == 4


def test_a_job_that_cannot_be_cancelled_does_not_protect_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled: list[str] = []
    jobs = [
        SimpleNamespace(ended=None, id="a", cancel=lambda _: fail()),
        SimpleNamespace(ended=None, id="b", cancel=cancelled.append),
    ]
    monkeypatch.setattr(interrupts, "RECENT", jobs)
    monkeypatch.setattr(interrupts, "cancel_all_jobs", lambda: cancelled.append("jobs of Spark"))
    interrupts.cancel_all()
    assert cancelled == ["interrupted from the keyboard", "jobs of Spark"]


def test_the_handler_is_restored() -> None:
    previous = signal.getsignal(signal.SIGINT)
    with interrupts.interrupts_restored():
        signal.signal(signal.SIGINT, interrupts._interrupt)
    assert signal.getsignal(signal.SIGINT) is previous
    with interrupts.interrupts_restored():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the program
    assert signal.signal(signal.SIGINT, previous) is signal.SIG_IGN


def test_a_handler_without_a_module_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(*_: object) -> None: ...

    monkeypatch.setattr(handler, "__module__", None)
    previous = signal.signal(signal.SIGINT, handler)
    try:
        interrupts.handle_interrupts()
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, previous)
