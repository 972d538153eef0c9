"""`penstock-python`: Python's own options keep their meaning, and Penstock is enabled with all of them."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.python import PythonCall, Target, parse_call

STATE = """
def annotated() -> int: pass
import json, sys, warnings
flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if name[0] != "_" and not callable(getattr(sys.flags, name))}
state = {
    "argv": sys.argv, "flags": flags, "name": __name__, "warn": sys.warnoptions, "xoptions": sys._xoptions,
    "filters": [str(entry) for entry in warnings.filters], "file": globals().get("__file__"), "first": sys.path[0],
    "main": sys.modules["__main__"].__dict__ is globals(), "annotations": repr(annotated.__annotations__),
    "spec": getattr(__spec__, "name", None), "package": __package__, "asserts": __debug__, "line": sys._getframe().f_lineno,
    "orig": sys.orig_argv[1:], "unbuffered": sys.stdout.write_through,
}
builder = getattr(sys.modules.get("pyspark.sql"), "SparkSession", None)
on = builder is not None and hasattr(builder.Builder.getOrCreate, "__wrapped__")
print(json.dumps([state, on]))
"""
# Python's arguments; FILE is a program, FOLDER and ZIP contain a __main__, and `beside` is a module in the same folder.
CALLS = [
    "FILE",
    "FILE 2026-11 -v --quiet -- -u",
    "-u FILE -u",
    "-B -q -s FILE",
    "-O FILE",
    "-OO FILE a",
    "-bb -d FILE",
    "-E FILE",
    "-I FILE 1",
    "-P FILE",
    "-x FILE",
    "-W error FILE",
    "-Werror::UserWarning -W ignore FILE",
    "-uWdefault FILE",
    "-X utf8 -Xdev FILE",
    "-R --check-hash-based-pycs always FILE",
    "-- FILE -x",
    "-m beside a --b",
    "-um beside a",
    "-Im json.tool --help",
    "-umbeside",
    "-c CODE a -c",
    "-Bc CODE",
    "-uc CODE -- a",
    "- a -m b",
    "-u -",
    "",
    "FOLDER a",
    "ZIP",
    "-P FOLDER",
]
ENDS = ["-V", "--version", "-h", "-J", "-m", "-c", "--nonsense", "NOWHERE a", "-m nowhere", "-c 1/0", "-X", "-W"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    (folder / "job.py").write_text(STATE)
    (folder / "beside.py").write_text(STATE)
    (folder / "folder").mkdir()
    (folder / "folder" / "__main__.py").write_text(STATE)
    with zipfile.ZipFile(folder / "job.zip", "w") as archive:
        archive.writestr("__main__.py", STATE)
    return folder


def run(home: Path, command: Sequence[str], words: str) -> subprocess.CompletedProcess[str]:
    names = {"FILE": "job.py", "FOLDER": "folder", "ZIP": "job.zip", "NOWHERE": "nowhere.py", "CODE": STATE}
    arguments = [names.get(word, word) for word in words.split()]
    reads_stdin = not arguments or "-" in arguments
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=home,
        input=STATE if reads_stdin else "",
    )


SERVED = [sys.executable, "-c", "import sys; from penstock.cli.python import main; main()"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("words", CALLS)
def test_same_state_as_plain_python(home: Path, words: str) -> None:
    plain, served = (run(home, command, words) for command in ([sys.executable], SERVED))
    assert plain.returncode == 0, plain.stderr
    assert served.returncode == 0, served.stderr
    if "json.tool" in words:
        assert served.stdout == plain.stdout
        return
    (expected, off), (state, on) = json.loads(plain.stdout), json.loads(served.stdout)
    assert state == expected
    assert not off
    assert on


@pytest.mark.thorough
@pytest.mark.sample(4)
@pytest.mark.parametrize("words", ENDS)
def test_same_exit_as_plain_python(home: Path, words: str) -> None:
    plain, served = (run(home, command, words) for command in ([sys.executable], SERVED))
    assert (served.returncode, served.stdout) == (plain.returncode, plain.stdout)
    assert served.stderr == plain.stderr


@pytest.mark.parametrize("option", ["-S", "-IS"])
def test_options_that_hide_packages_are_rejected(home: Path, option: str) -> None:
    done = run(home, SERVED, f"{option} FILE")
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"penstock-python cannot run the program with {option}" in done.stderr
    assert "hint:" in done.stderr


def test_prompt_has_the_names_of_the_program(home: Path) -> None:
    command = [*SERVED, "-iq", "job.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=home, input="print('on', on)\n"
    )
    assert "on True" in done.stdout


PARSED: dict[str, Any] = {
    "": PythonCall((), Target.NOTHING, "", ()),
    "-": PythonCall((), Target.STDIN, "", ()),
    "-i": PythonCall(("-i",), Target.NOTHING, "", (), frozenset("i")),
    "-uBm a.b c": PythonCall(("-uB",), Target.MODULE, "a.b", ("c",), frozenset("uB")),
    "-uXdev a -x": PythonCall(("-uX", "dev"), Target.FILE, "a", ("-x",), frozenset("u")),
    "-Wi -X i a": PythonCall(("-W", "i", "-X", "i"), Target.FILE, "a", ()),
    "-uh a": None,
    "-V": None,
    "-Z a": None,
    "--help": None,
}


@pytest.mark.parametrize("words", PARSED)
def test_parsing(words: str) -> None:
    assert parse_call(words.split()) == PARSED[words]
