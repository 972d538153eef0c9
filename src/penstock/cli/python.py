"""The command `penstock-python`: Python with Penstock enabled in all Spark sessions.

With the setting ``spark.pyspark.driver.python=penstock-python``, Spark starts programs by this command, so a setting
is enough to enable Penstock. The command starts Python with the same options, enables Penstock in all Spark sessions,
and then runs the program in the module ``__main__``, as plain Python does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import CodeType
from typing import Any

_ROOT = str(Path(__file__).parent.parent.parent)
_BOOTSTRAP = """import sys
sys.flags.safe_path or sys.path.pop(0)
from importlib.util import find_spec
missing = [name for name in ("penstock", "pyspark") if find_spec(name) is None]
sys.path.insert(0, {root!r})
from penstock.cli.python import run_program
sys.path.pop(0)
run_program(missing)
"""
"""The code that Python runs first. It must not import from the current folder, which Python with ``-c`` searches."""
_PATH_OPTIONS = "-E, -I, -s or -S"  # options that omit folders from the module search path
_ENABLED_SESSIONS: list[object] = []
"""Keeps the context of `_enable` open until the process ends, as threads of the program may outlive its code."""
_FLAG_LETTERS = frozenset("bBdEiIOPqRsStuvx")  # options of Python without a value
_LETTERS_WITH_VALUE = frozenset("WX")
_LONG_OPTION_WITH_VALUE = "--check-hash-based-pycs"


class Target(Enum):
    """The kind of program that a command line names."""

    FILE = "a file, a folder or a zip archive"
    CODE = "-c"
    MODULE = "-m"
    STDIN = "-"
    NOTHING = "nothing: standard input, or a prompt on a terminal"


@dataclass(frozen=True, slots=True)
class PythonCall:
    """A parsed command line: ``python [options] [FILE | -c CODE | -m MODULE | -] [arguments]``.

    `program` is the file, code or module, empty for other targets; `flags` are the letters of options without a value.
    """

    options: tuple[str, ...]
    target: Target
    program: str
    arguments: tuple[str, ...]
    flags: frozenset[str] = frozenset()


def parse_call(arguments: Sequence[str]) -> PythonCall | None:
    """Parse a command line of Python; None if it requests help or the version, or is not valid.

    >>> call = parse_call(["-um", "http.server", "8000"])
    >>> call.options, call.program, call.arguments
    (('-u',), 'http.server', ('8000',))
    """
    options: list[str] = []
    flags: set[str] = set()
    remaining = list(arguments)
    while remaining and remaining[0].startswith("-") and remaining[0] != "-":
        word = remaining.pop(0)
        if word == "--":
            break
        if word == _LONG_OPTION_WITH_VALUE and remaining:
            options += [word, remaining.pop(0)]
            continue
        if word.startswith("--"):
            return None
        # A word has letters of flags, and may end with a letter and its value: -uv, -Wignore, -umhttp.server.
        for position, letter in enumerate(word[1:], 1):
            if letter in _FLAG_LETTERS:
                flags.add(letter)
                continue
            flag_word, value = word[:position], word[position + 1 :]
            if letter not in _LETTERS_WITH_VALUE | {"c", "m"} or not (value or remaining):
                return None
            value = value or remaining.pop(0)
            if letter in _LETTERS_WITH_VALUE:
                options += [flag_word + letter, value]
                break
            options += [flag_word] if position > 1 else []
            target = Target.CODE if letter == "c" else Target.MODULE
            return PythonCall(tuple(options), target, value, tuple(remaining), frozenset(flags))
        else:
            options.append(word)
    target = Target.NOTHING if not remaining else Target.STDIN if remaining[0] == "-" else Target.FILE
    program = remaining[0] if target is Target.FILE else ""
    return PythonCall(tuple(options), target, program, tuple(remaining[1:]), frozenset(flags))


def main() -> None:
    """Run ``penstock-python`` with the arguments of this process."""
    arguments = sys.argv[1:]
    call = parse_call(arguments)
    command = [sys.executable, *arguments]
    if call is not None:  # else Python itself shows help, the version or an error
        prompt = ["-i"] if _shows_prompt(call) else []
        command = [sys.executable, *call.options, *prompt, "-c", _BOOTSTRAP.format(root=_ROOT), *arguments]
    os.execv(sys.executable, command)  # noqa: S606 - the same interpreter


def run_program(missing: Sequence[str]) -> None:
    """Enable Penstock in all Spark sessions of this process, and run the program that `sys.argv` names.

    `missing` are the packages that cannot be imported with the options of this process.
    """
    arguments = sys.argv[1:]
    call = parse_call(arguments)
    assert call is not None
    sys.orig_argv = [sys.executable, *arguments]
    _enable(call, missing)
    namespace = sys.modules["__main__"].__dict__
    for name in [name for name in namespace if not name.startswith("__")]:
        del namespace[name]  # names from `_BOOTSTRAP`
    if _shows_prompt(call):
        sys.argv = [""]
        _insert_path("")
        if not sys.flags.quiet:
            sys.stderr.write(f"Python {sys.version} on {sys.platform}, with Penstock\n")
        return  # Python shows its prompt next
    _run(call, namespace)


def _shows_prompt(call: PythonCall) -> bool:
    return call.target is Target.NOTHING and bool("i" in call.flags or sys.flags.inspect or sys.stdin.isatty())


def _enable(call: PythonCall, missing: Sequence[str]) -> None:
    import warnings

    from penstock.errors import PenstockError

    if missing:
        error = PenstockError(
            f"penstock-python cannot run the program with {' '.join(call.options) or 'this interpreter'}",
            cause=f"{' and '.join(missing)} cannot be imported with these options",
            hint=f"omit {_PATH_OPTIONS}, install the packages where Python finds them with these options, or run plain "
            "python, without Penstock",
        )
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2)
    with warnings.catch_warnings():  # `-W error` applies to the program only
        warnings.simplefilter("ignore")
        from penstock.extension.program import all_sessions_enabled

        enabled = all_sessions_enabled()
        enabled.__enter__()
    _ENABLED_SESSIONS.append(enabled)


def _run(call: PythonCall, namespace: dict[str, Any]) -> None:
    import runpy
    from pkgutil import get_importer

    from penstock.cli.scripts import exit_as_python

    # The public functions of runpy do not run the program in the module `__main__`.
    run_as_main: Any = runpy._run_module_as_main  # type: ignore[attr-defined]  # noqa: SLF001
    sys.argv = [call.program or call.target.value if call.target is not Target.NOTHING else "", *call.arguments]
    match call.target:
        case Target.MODULE:
            sys.argv[0] = "-m"
            _insert_path(str(Path.cwd()))
            with exit_as_python(lambda: str(namespace.get("__file__"))):
                run_as_main(call.program)
        case Target.CODE:
            sys.argv[0] = "-c"
            _insert_path("")
            _execute(call.program, "<string>", namespace)
        case Target.FILE if get_importer(call.program) is not None:  # a folder or an archive
            _insert_path(str(Path(call.program).absolute()), always=True)
            with exit_as_python(lambda: str(namespace.get("__file__"))):
                run_as_main("__main__", alter_argv=False)
        case Target.FILE:
            _run_file(call, namespace)
        case _:
            _insert_path("")
            namespace["__file__"] = "<stdin>"
            _execute(sys.stdin.buffer.read(), "<stdin>", namespace)


def _run_file(call: PythonCall, namespace: dict[str, Any]) -> None:
    from importlib.machinery import SourceFileLoader
    from io import BytesIO
    from pkgutil import read_code

    path = str(Path(call.program).absolute())
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        sys.stderr.write(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n")
        raise SystemExit(2) from error
    if "x" in call.flags:
        source = b"\n" + source.partition(b"\n")[2]  # the option -x skips the first line
    namespace |= {"__file__": path, "__cached__": None, "__loader__": SourceFileLoader("__main__", path)}
    _insert_path(str(Path(path).resolve().parent))
    _execute(read_code(BytesIO(source)) or source, path, namespace)  # the code of a .pyc file, or else the source


def _execute(code: CodeType | bytes | str, path: str, namespace: dict[str, Any]) -> None:
    from penstock.cli.scripts import exit_as_python

    with exit_as_python(lambda: path):
        code = code if isinstance(code, CodeType) else compile(code, path, "exec", dont_inherit=True)
        exec(code, namespace)  # noqa: S102 - as Python does


def _insert_path(folder: str, *, always: bool = False) -> None:
    """Put the folder of the program first in the module search path, if Python's options allow it or `always`."""
    if always or not sys.flags.safe_path:
        sys.path.insert(0, folder)
