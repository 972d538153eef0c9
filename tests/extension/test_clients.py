"""Programs of many kinds get the results of plain Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from tests.conftest import OFF
from tests.extension.learning import LEARNING
from tests.extension.programs import PROGRAMS
from tests.extension.statements import STATEMENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ALL = LEARNING | PROGRAMS | STATEMENTS


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*loads all data into the driver's memory")
@pytest.mark.parametrize("name", ALL)
def test_program_results_are_the_same(name: str, spark: SparkSession, tmp_path: Path) -> None:
    folders = tmp_path / "plain", tmp_path / "enabled"
    for folder in folders:
        folder.mkdir()
    expected = ALL[name](spark, folders[0])
    with penstock.enabled(spark, config=OFF):
        assert ALL[name](spark, folders[1]) == expected
