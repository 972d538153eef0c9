"""Runs a page of docs/integrations as written: its files, and its commands, with the real packages in their own venv."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import DATA
from tests.support.paths import ROOT

PAGES = ROOT / "docs" / "integrations"
_FILE = re.compile(r"^`([\w/]+\.\w+)`[^\n]*:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A code block that a line with the path of a file and a colon introduces."""
_COMMANDS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INHERITED = ("HOME", "JAVA_HOME", "LANG", "PATH", "PIP_CACHE_DIR", "TMPDIR")
"""Variables of the tests that commands get; others, such as PYTHONPATH, would not be set where a user pastes them."""


class StackPage:
    """A page whose files are in a folder, and whose packages are in a venv.

    The venv is in the folder of test data, so a package is downloaded once; Penstock is installed for each instance.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.text = (PAGES / f"{name}.md").read_text()
        self.folder = folder
        self._venv = DATA / "venvs" / name
        (folder / "penstock").symlink_to(ROOT)
        for path, content in _FILE.findall(self.text):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)
        self.install, *self.commands = _COMMANDS.findall(self.text)
        if not (self._venv / "bin" / "pip").exists():
            subprocess.run([sys.executable, "-m", "venv", str(self._venv)], check=True)
        done = self._run(self.install, {}, timeout=1000)
        if done.returncode:
            pytest.fail(f"the packages of {name}.md cannot be installed: {done.stderr[-3000:]}")

    def start(self, command: str, **variables: str) -> subprocess.Popen[str]:
        """Start a command of the page, with its standard error in its output."""
        return subprocess.Popen(
            ["bash", "-ec", command],
            cwd=self.folder,
            env=self._environ(variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str, **variables: str) -> str:
        """Run a command of the page; return its output, with its standard error."""
        done = self._run(command, variables, timeout=400)
        assert done.returncode == 0, (command, done.stdout[-6000:], done.stderr[-3000:])
        return done.stdout + done.stderr

    def _run(self, command: str, variables: dict[str, str], timeout: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-ec", command],
            cwd=self.folder,
            env=self._environ(variables),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def _environ(self, variables: dict[str, str]) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        own = {
            "VIRTUAL_ENV": str(self._venv),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        return inherited | own | {"PATH": f"{self._venv}/bin:{os.environ['PATH']}"} | variables
