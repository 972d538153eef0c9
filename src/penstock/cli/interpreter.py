"""Parsing of Python's command line: ``python [options] [FILE | -c CODE | -m MODULE | -] [arguments]``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAGS = frozenset("bBdEiIOPqRsStuvx")
_WITH_VALUE = frozenset("WX")
_LONG_WITH_VALUE = "--check-hash-based-pycs"


class Target(Enum):
    """The kind of program that a command line names."""

    FILE = "a file, a folder or a zip archive"
    CODE = "-c"
    MODULE = "-m"
    STDIN = "-"
    NOTHING = "nothing: standard input, or a prompt on a terminal"


@dataclass(frozen=True, slots=True)
class PythonCall:
    """A parsed command line of Python.

    Parameters
    ----------
    options
        Python's own options, unchanged.
    target
        The kind of program.
    program
        The file, code or module; empty for other kinds.
    arguments
        The program's arguments.
    flags
        The letters of the options without a value.
    """

    options: tuple[str, ...]
    target: Target
    program: str
    arguments: tuple[str, ...]
    flags: frozenset[str] = frozenset()


def parse_call(arguments: Sequence[str]) -> PythonCall | None:
    """Parse a command line of Python.

    Returns
    -------
    PythonCall or None
        None if the command line runs no program: it asks for help or the version, or is not valid.

    Examples
    --------
    >>> call = parse_call(["-um", "http.server", "8000"])
    >>> call.options, call.program, call.arguments
    (('-u',), 'http.server', ('8000',))
    """
    options: list[str] = []
    flags: set[str] = set()
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word == _LONG_WITH_VALUE and rest:
            options += [word, rest.pop(0)]
            continue
        if word.startswith("--"):
            return None
        for position, letter in enumerate(word[1:], 1):
            if letter in _FLAGS:
                flags.add(letter)
                continue
            before, value = word[:position], word[position + 1 :]
            if letter not in _WITH_VALUE | {"c", "m"} or not (value or rest):
                return None
            value = value or rest.pop(0)
            if letter in _WITH_VALUE:
                options += [before + letter, value]
                break
            options += [before] if position > 1 else []
            target = Target.CODE if letter == "c" else Target.MODULE
            return PythonCall(tuple(options), target, value, tuple(rest), frozenset(flags))
        else:
            options.append(word)
    if not rest:
        return PythonCall(tuple(options), Target.NOTHING, "", (), frozenset(flags))
    first, *others = rest
    target = Target.STDIN if first == "-" else Target.FILE
    return PythonCall(tuple(options), target, "" if first == "-" else first, tuple(others), frozenset(flags))
