"""All Python code of a tutorial runs as a script, in an empty folder and once more in the same folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_tutorials import blocks

pytestmark = pytest.mark.slow

OUTPUT = {
    "first-job.md": ["Spark: .* s, 100 countries", "Penstock: .* s, 100 countries", "orders by country", "7 rows"],
    "own-strategy.md": ["without the strategy: .* MiB", "with the strategy: .* MiB", "it has [0-9]+ rows only"],
    "own-connector.md": ["title='title 6', count=714", "5000 lines"],
}


@pytest.mark.parametrize("page", OUTPUT)
def test_a_tutorial_runs_twice_as_a_script(page: str, tmp_path: Path) -> None:
    file = tmp_path / "pasted.py"
    file.write_text("\n".join(blocks(page)))
    environ = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(file)],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        for text in OUTPUT[page]:
            assert re.search(text, done.stdout), (text, done.stdout)


def test_the_strategy_of_the_tutorial_halves_the_shuffle(tmp_path: Path) -> None:
    file = tmp_path / "pasted.py"
    file.write_text("\n".join(blocks("own-strategy.md")))
    environ = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(file)], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    without, with_it = (int(size) for size in re.findall(r"strategy: (\d+) MiB", done.stdout))
    assert with_it < without / 2
