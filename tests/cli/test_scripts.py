"""A file that `penstock run` runs ends as with Python: the same exit code, and a traceback of its own lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.scripts import traceback_of

FILES = {
    "ends": "print('done')",
    "leaves": "import sys; sys.exit(3)",
    "leaves with words": "import sys; sys.exit('no orders today')",
    "leaves with nothing": "raise SystemExit",
    "fails": "def load():\n    return {}['orders']\nload()",
    "fails behind another": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('no') from error",
    "fails in an except": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError('no')",
    "fails in the library": "import json\njson.loads('{')",
    "is not Python": "def broken(:\n    pass",
    "reads its arguments": "import sys\nprint(sys.argv[1:], __name__)",
    "tells its file after it has changed the folder": (
        "import os, sys\nos.chdir('/')\nprint(__file__, sys.argv[0], sys.modules['__main__'].__file__, __builtins__.len)"
    ),
    "imports what is beside it": "import beside\nprint(beside.VALUE)",
}
RUNS = "import sys; from penstock.cli.scripts import run_file; run_file(sys.argv[1], sys.argv[2:])"


def ran(folder: Path, *command: str) -> Any:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, cwd=folder)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("is_absolute", [True, False], ids=["absolute", "relative"])
@pytest.mark.parametrize("name", FILES)
def test_same_result_as_python(tmp_path: Path, name: Any, *, is_absolute: bool) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 7")
    file = tmp_path / "job.py"
    file.write_text(FILES[name])
    path = str(file) if is_absolute else file.name
    assert ran(tmp_path, "-c", RUNS, path, "2026-11", "--all") == ran(tmp_path, path, "2026-11", "--all")


def test_a_full_disk_is_named_below_the_traceback(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("import pyspark\nraise RuntimeError('writing rows to file:/out.\\nNo space left on device')")
    code, _, errors = ran(tmp_path, "-c", RUNS, str(file))
    assert code == 1
    assert "RuntimeError: writing rows" in errors
    assert errors.splitlines()[-2] == "error: the disk of file:/out is full"


def test_a_wrong_option_is_an_error_with_the_line_of_the_program(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("from penstock.config import Configuration\ndef load():\n    Configuration.load({'no': 1})\nload()")
    code, _, errors = ran(tmp_path, "-c", RUNS, str(file))
    assert (code, errors.splitlines()[0]) == (1, "error: unknown option 'no' in Environment(config=...)")
    assert errors.splitlines()[-1] == f"  line:  {file}:3"
    assert "Traceback" not in errors


def test_advice_about_an_error_without_text(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(
        "import pyspark\nclass Error(Exception):\n    def __str__(self):\n        raise ValueError\nraise Error"
    )
    assert ran(tmp_path, "-c", RUNS, str(file)) == ran(tmp_path, str(file))


def test_traceback_of_a_penstock_error(tmp_path: Path) -> None:
    from penstock.errors import SourceError

    file = tmp_path / "job.py"
    file.write_text(
        "from penstock.connectors.core import base\ndef load():\n    base.require_positive(0, 'orders')\nload()"
    )
    try:
        exec(compile(file.read_text(), str(file), "exec"), {})
    except SourceError as error:
        error.__cause__ = RuntimeError("a long trace of the JVM")
        text = traceback_of(error, str(file))
    assert [line for line in text.splitlines() if line.lstrip().startswith("File")] == [
        f'  File "{file}", line 4, in <module>',
        f'  File "{file}", line 3, in load',
    ]
    assert "invalid parallelism 0 for orders" in text
    assert "hint:" in text
    assert "JVM" not in text
