"""Commands without Java, or with an old PySpark: the error says what to do, without a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_main import penstock

PROGRAMS = {
    "SESSION": "from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate()\n",
    "ENABLE": "import penstock\npenstock.enable()\n",
}
COMMANDS = ["run SESSION", "run ENABLE", "verify SESSION", "demo", "connect-server --port 0", "sql SELECT"]
OLD_PYSPARK = """error: Spark 3.5.1 is not supported
  cause: Penstock supports Spark 4.0, 4.1, 4.2 and 4.3
  hint:  pip install 'pyspark>=4.0,<4.4'; """


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    for name, text in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(text)
    return {name: str(tmp_path / f"{name}.py") for name in PROGRAMS}


@pytest.mark.sample(1)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_java_is_an_error_without_traceback(programs: dict[str, str], command: str) -> None:
    done = penstock(*(programs.get(word, word) for word in command.split(" ")), JAVA_HOME="/nonexistent")
    assert done.returncode == 1
    assert "error: Spark could not be started: no Java 17 or newer was found\n  cause: JAVA_HOME" in done.stderr
    assert "openjdk" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.sample(1)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_old_pyspark_is_an_error_without_traceback(programs: dict[str, str], tmp_path: Path, command: str) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "3.5.1"\n')
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from penstock.cli.main import main; main()"
    words = [programs.get(word, word) for word in command.split(" ")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[: len(OLD_PYSPARK)]) == (1, OLD_PYSPARK)
