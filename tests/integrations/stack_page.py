"""Runs a page of docs/integrations as written: its files and its commands, with the real packages in their own venv."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import DATA
from tests.support.paths import ROOT
from tests.support.services import SHORT_LIVED_JAVA_OPTIONS

_FILE = re.compile(r"^`([\w/]+\.\w+)`[^\n]*:\n\n```(?!sh|text)\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A code block after a line that begins with the path of a file and ends with a colon."""
_COMMANDS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SAMPLES = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INHERITED = ("HOME", "JAVA_HOME", "LANG", "TMPDIR")
"""Variables of the test run that commands get; the others would not be set where a reader pastes the commands."""


class StackPage:
    """A page, with its packages in a venv.

    The first block of shell commands installs the packages. The venv is created again if these commands or the
    requirements of Penstock change. Penstock's code is always that of this checkout.
    """

    def __init__(self, name: str) -> None:
        text = (ROOT / "docs" / "integrations" / f"{name}.md").read_text()
        self.files: dict[str, str] = dict(_FILE.findall(text))
        self.samples = _SAMPLES.findall(text)
        install, *self.commands = _COMMANDS.findall(text)
        self._venv = DATA.resolve() / "venvs" / name
        stamp, content = self._venv / "installed", install + (ROOT / "pyproject.toml").read_text()
        if not stamp.exists() or stamp.read_text() != content:
            self._install(name, install)
            stamp.write_text(content)

    def write_files(self, folder: Path) -> None:
        """Write the files of the page into a folder."""
        for path, content in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)

    def start(self, command: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own; its output includes its standard error."""
        return subprocess.Popen(
            ["bash", "-ec", command],
            cwd=folder,
            env=self._environ(folder) | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str, folder: Path, **variables: str) -> str:
        """Run a command that succeeds, and return its output with its standard error."""
        process = self.start(command, folder, **variables)
        try:
            output, _ = process.communicate(timeout=600)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, f"{command}\n{output[-8000:]}"
        return output

    def _install(self, name: str, command: str) -> None:
        shutil.rmtree(self._venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(self._venv)], check=True)
        (self._venv / "penstock").symlink_to(ROOT)
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self._venv,
            env=self._environ(self._venv) | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        (self._venv / "penstock").unlink()
        if done.returncode:
            pytest.fail(f"the packages of docs/integrations/{name}.md cannot be installed: {done.stderr[-3000:]}")

    def _environ(self, folder: Path) -> dict[str, str]:
        return {name: os.environ[name] for name in _INHERITED if name in os.environ} | {
            "PATH": f"{self._venv}/bin:{os.defpath}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": SHORT_LIVED_JAVA_OPTIONS,
            "VIRTUAL_ENV": str(self._venv),
            "XDG_STATE_HOME": str(folder / "state"),
        }
