"""The user's call that waits for a query, read from thread stacks: PySpark sets ``callSite.short`` for few calls."""

from __future__ import annotations

import os
import re
import selectors
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any

import py4j
import pyspark

from penstock.base.location import INSTALLED, PACKAGE, PYTHON, UserLine

_BRIDGE = tuple(str(Path(file).parent) + os.sep for file in (py4j.__file__, pyspark.__file__) if file)
"""Beginnings of the paths of files of the packages that call the JVM."""
_CALL = re.compile(r"(\S+) at (.+):(\d+)")
_PREFIXES = {"DataFrameWriter": "write.", "DataFrameWriterV2": "writeTo.", "DataFrameReader": "read."}
"""By class of PySpark, what precedes the names of its methods in a program."""


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call of the JVM whose answer a thread awaits on a connection of py4j."""

    _connection: Any

    @classmethod
    def of(cls, innermost: FrameType | None) -> WaitingCall | None:
        """Return the call in which a thread waits, by its innermost frame; None if it does not wait."""
        for frame, _ in () if innermost is None else walk_stack(innermost):
            if frame.f_code.co_qualname == "ClientServerConnection.send_command":
                return cls(frame.f_locals["self"])
        return None

    @property
    def port(self) -> int | None:
        """The local port of the connection; None if it is closed."""
        try:
            return int(self._connection.socket.getsockname()[1])
        except (AttributeError, OSError):  # its thread closes it
            return None

    def has_ended(self, timeout: float) -> bool:
        """Whether the JVM answers within some seconds, or the connection is closed."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._connection.socket, selectors.EVENT_READ)
                return bool(selector.select(timeout))
        except (ValueError, OSError):
            return True

    def abandon(self) -> None:
        """Close the connection, so that no later call of the thread reads this call's answer.

        py4j itself closes a connection that an interrupt leaves. The next call of the thread opens another connection,
        for which another thread of the JVM works, without the job group, other local properties and active session.
        """
        with suppress(Exception):  # the program must be interrupted after any error
            self._connection.close()


def waiting_call(port: int | None) -> str | None:
    """Return the user's call that waits for the JVM, such as ``show at job.py:12``; None if it is unknown.

    `port` is the local port of the connection on which the thread waits, see ``DelegatedQuery.pythonPort``. If it is
    None, return the call that waits, if there is only one.
    """
    calls = []
    for thread, innermost in sys._current_frames().items():
        waiting = None if thread == threading.get_ident() else WaitingCall.of(innermost)
        call = _user_call(innermost) if waiting is not None and port in {None, waiting.port} else None
        calls += [] if call is None else [call]
    return calls[0] if len(calls) == 1 else None


def _user_call(innermost: FrameType) -> str | None:
    """Return the user's call of PySpark in which a thread waits, by its innermost frame; None if there is none.

    The user's line is the innermost line of a program, or else of an installed package that calls PySpark.
    """
    function, library_call = "", None
    for frame, line in walk_stack(innermost):
        file = frame.f_code.co_filename
        if file.startswith(_BRIDGE):
            class_name, _, method = frame.f_code.co_qualname.rpartition(".")
            function = _PREFIXES.get(class_name, "") + method
        elif not function or file.startswith(PACKAGE):
            continue
        elif file.startswith(INSTALLED):
            library_call = library_call or _call_text(function, file, line)
        elif not file.startswith(PYTHON):
            return _call_text(function, file, line)
    return library_call


def is_pyspark_call(call: str) -> bool:
    """Whether a call site has the form of PySpark, such as ``collect at /home/job.py:3``; users may set any text."""
    return _CALL.fullmatch(call) is not None


def short_call(call: str) -> str:
    """Shorten a call site of PySpark, such as ``collect at /home/job.py:3``, as `waiting_call` would return it."""
    match = _CALL.fullmatch(call)
    return _call_text(match[1], match[2], int(match[3])) if match else call


def _call_text(function: str, file: str, line: int) -> str:
    user_line = UserLine(file, line)
    return f"{function} {'in' if user_line.cell else 'at'} {user_line.short}"
