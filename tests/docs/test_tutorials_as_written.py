"""The tutorials work as written: blocks are pasted into their files, commands run in order, and sample outputs are real."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.outputs import lines_not_printed
from tests.support.paths import ROOT

TUTORIALS = ROOT / "docs" / "tutorials"


class Block(NamedTuple):
    """A code block; `file` is where a Python block is pasted: the file in the text before it, or that of the last block."""

    language: str
    text: str
    file: str


def blocks_of(page: str) -> list[Block]:
    blocks, file, end = [], "", 0
    for match in re.finditer(r"^```(\w*)\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        named = re.search(r"`(\w+\.py)`[.:]\s*\Z", page[end : match.start()])
        file, end = named[1] if named else file, match.end()
        blocks.append(Block(match[1], match[2], file))
    return blocks


def script_of(blocks: list[Block], *, install: bool) -> str:
    """Return a shell script that does what a reader does; commands that install packages only if `install`."""
    parts = ["set -e"]
    for block in blocks:
        if block.language == "python":
            parts.append(f"cat >> {block.file} <<'END OF BLOCK'\n{block.text}\nEND OF BLOCK")
        elif block.language == "sh" and (install or "pip install" not in block.text):
            parts.append(block.text)
    return "\n".join(parts)


def run(page: str, folder: Path, *, install: bool) -> str:
    """Do what a tutorial says in an empty folder, compare the sample outputs, and return what was printed."""
    blocks = blocks_of((TUTORIALS / page).read_text())
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PATH": path}
    if install:  # nothing of this checkout is imported
        environ = {name: value for name, value in environ.items() if name not in {"PYTHONPATH", "PYSPARK_PYTHON"}}
    two_cores = (
        ["taskset", "--cpu-list", "0,1"] if shutil.which("taskset") else []
    )  # the samples are from such a machine
    done = subprocess.run(
        [*two_cores, "bash", "-c", script_of(blocks, install=install)],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    outputs = "\n".join(block.text for block in blocks if block.language == "text")
    assert lines_not_printed(outputs, done.stdout) == [], done.stdout
    return done.stdout


@pytest.mark.thorough
def test_the_tutorial_on_strategies_works_as_written(tmp_path: Path) -> None:
    printed = run("own-strategy.md", tmp_path, install=False)
    without, with_it = (int(size) for size in re.findall(r"strategy: (\d+) MiB", printed))
    assert with_it < without / 2


@pytest.mark.thorough
def test_the_tutorial_on_connectors_works_as_written(tmp_path: Path) -> None:
    assert "5000 lines" in run("own-connector.md", tmp_path, install=False)


@pytest.mark.slow
def test_the_first_tutorial_works_as_written(tmp_path: Path) -> None:
    """It also installs Penstock from a checkout, as it says."""
    (tmp_path / "penstock").symlink_to(ROOT)
    run("first-job.md", tmp_path, install=True)


@pytest.mark.parametrize("page", sorted(path.name for path in TUTORIALS.iterdir()))
def test_all_blocks_of_a_tutorial_are_used(page: str) -> None:
    text = (TUTORIALS / page).read_text()
    blocks = blocks_of(text)
    assert {block.language for block in blocks} == {"python", "sh", "text"}
    assert all(block.file for block in blocks if block.language == "python")
    assert re.findall("pip install (?!\\./penstock)", text) == [], "penstock on PyPI belongs to another project"


def test_a_block_is_pasted_into_the_file_before_it() -> None:
    page = "In `a.py`:\n\n```python\n1\n```\n\nText.\n\n```python\n2\n```\n\n`b.py` is not pasted:\n\n```sh\npip install x\n```\n"
    assert blocks_of(page) == [("python", "1\n", "a.py"), ("python", "2\n", "a.py"), ("sh", "pip install x\n", "a.py")]
    assert "pip" not in script_of(blocks_of(page), install=False)
