"""Small file systems that tests can fill up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_file_system(folder: Path, mebibytes: int) -> Iterator[Path]:
    """Mount a tmpfs at a new folder; skip the test if the user may not, or fail if ALL_TEST_SERVICES is 1."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        if os.environ.get("ALL_TEST_SERVICES") == "1":
            pytest.fail("a small file system cannot be mounted here")
        pytest.skip("a small file system cannot be mounted without root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
