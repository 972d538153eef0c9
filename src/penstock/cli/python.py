"""The command `penstock-python`: Python, with the Spark sessions of its programs enabled.

It is for programs that are configured only by settings: ``spark.pyspark.driver.python=penstock-python``. It accepts
Python's own options, starts Python with them, enables all Spark sessions, and then runs the program in the module
``__main__``, as Python does without Penstock.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = str(Path(__file__).parent.parent.parent)
_START = """import sys
sys.flags.safe_path or sys.path.pop(0)
from importlib.util import find_spec
missing = [name for name in ("penstock", "pyspark") if find_spec(name) is None]
sys.path.insert(0, {root!r})
from penstock.cli.python import serve
sys.path.pop(0)
serve(missing)
"""
"""The code that Python runs first; it must not import from the current folder, as plain Python would not."""
_PATH_OPTIONS = "-E, -I, -s or -S"
_ENABLED: list[object] = []
"""The context managers that enable the sessions until the process ends, as threads may outlive the program."""
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
    """A parsed command line: ``python [options] [FILE | -c CODE | -m MODULE | -] [arguments]``.

    `program` is the file, code or module, empty for other targets; `flags` are the letters of options without a value.
    """

    options: tuple[str, ...]
    target: Target
    program: str
    arguments: tuple[str, ...]
    flags: frozenset[str] = frozenset()


def parse_call(arguments: Sequence[str]) -> PythonCall | None:
    """Parse a command line of Python; None if it runs no program: it requests help or the version, or is not valid.

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
    target = Target.NOTHING if not rest else Target.STDIN if rest[0] == "-" else Target.FILE
    program = rest[0] if target is Target.FILE else ""
    return PythonCall(tuple(options), target, program, tuple(rest[1:]), frozenset(flags))


def main() -> None:
    """Run ``penstock-python`` with the arguments of this process."""
    arguments = sys.argv[1:]
    call = parse_call(arguments)
    command = [sys.executable, *arguments]
    if call is not None:
        prompt = ["-i"] if _is_prompt(call) else []
        command = [sys.executable, *call.options, *prompt, "-c", _START.format(root=_ROOT), *arguments]
    os.execv(sys.executable, command)  # noqa: S606 - the same interpreter


def serve(missing: Sequence[str]) -> None:
    """Enable all Spark sessions of this process, and run the program in its arguments.

    `missing` are the packages that cannot be imported with the options of this process.
    """
    arguments = sys.argv[1:]
    call = parse_call(arguments)
    assert call is not None
    sys.orig_argv = [sys.executable, *arguments]
    _enable(call, missing)
    namespace = sys.modules["__main__"].__dict__
    for name in [name for name in namespace if not name.startswith("__")]:
        del namespace[name]  # names from `_START`
    if _is_prompt(call):
        sys.argv = [""]
        _insert_path("")
        if not sys.flags.quiet:
            sys.stderr.write(f"Python {sys.version} on {sys.platform}, with Penstock\n")
        return  # Python shows its prompt next
    _run(call, namespace)


def _is_prompt(call: PythonCall) -> bool:
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
    _ENABLED.append(enabled)


def _run(call: PythonCall, namespace: dict[str, Any]) -> None:
    import runpy
    from pkgutil import get_importer

    from penstock.cli.scripts import errors_as_python

    # The public functions of runpy do not run the program in the module `__main__`.
    run_as_main: Any = runpy._run_module_as_main  # type: ignore[attr-defined]  # noqa: SLF001
    sys.argv = [call.program or call.target.value if call.target is not Target.NOTHING else "", *call.arguments]
    match call.target:
        case Target.MODULE:
            sys.argv[0] = "-m"
            _insert_path(str(Path.cwd()))
            with errors_as_python(lambda: str(namespace.get("__file__"))):
                run_as_main(call.program)
        case Target.CODE:
            sys.argv[0] = "-c"
            _insert_path("")
            _execute(call.program, "<string>", namespace)
        case Target.FILE if get_importer(call.program) is not None:
            _insert_path(str(Path(call.program).absolute()), always=True)
            with errors_as_python(lambda: str(namespace.get("__file__"))):
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
        source = b"\n" + source.partition(b"\n")[2]
    namespace |= {"__file__": path, "__cached__": None, "__loader__": SourceFileLoader("__main__", path)}
    _insert_path(str(Path(path).resolve().parent))
    _execute(read_code(BytesIO(source)) or source, path, namespace)


def _execute(code: CodeType | bytes | str, path: str, namespace: dict[str, Any]) -> None:
    from penstock.cli.scripts import errors_as_python

    with errors_as_python(lambda: path):
        code = code if isinstance(code, CodeType) else compile(code, path, "exec", dont_inherit=True)
        exec(code, namespace)  # noqa: S102 - as Python does


def _insert_path(folder: str, *, always: bool = False) -> None:
    """Put the folder of the program first in the module search path, unless Python's options forbid it."""
    if always or not sys.flags.safe_path:
        sys.path.insert(0, folder)
