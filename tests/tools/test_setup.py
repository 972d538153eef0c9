"""The script that sets up the virtual environment is quiet, unless an installer fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PYTHON = """#!/usr/bin/env bash
if [ "$1" = -m ]; then  # python -m venv FOLDER
  mkdir -p "$3/bin"
  printf '#!/usr/bin/env bash\\necho "WARNING: Location is ignored"\\necho "$*" >"$(dirname "$0")/arguments"\\nexit %s\\n' "$PIP_EXIT" >"$3/bin/pip"
  chmod +x "$3/bin/pip"
fi
"""
JAVA = """#!/usr/bin/env bash
echo 'openjdk version "17.0.1"' >&2
"""


@pytest.mark.parametrize(
    ("pip_exit", "extras", "installed", "is_shown"),
    [(0, [], ".", False), (0, ["delta,dev"], ".[delta,dev]", False), (1, [], ".", True)],
    ids=["the demo", "the tests", "a failure"],
)
def test_pip_is_quiet_unless_it_fails(
    pip_exit: int, extras: list[str], installed: str, is_shown: bool, tmp_path: Path
) -> None:
    for name, text in (("python", PYTHON), ("java", JAVA)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHON": str(tmp_path / "python"),
        "PIP_EXIT": str(pip_exit),
    }
    command = [str(ROOT / "tools" / "setup.sh"), str(tmp_path / "venv"), *extras]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == pip_exit
    assert ("WARNING" in done.stdout + done.stderr) == is_shown
    assert (tmp_path / "venv" / "bin" / "arguments").read_text().split()[-1] == installed
