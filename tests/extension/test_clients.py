"""Programs of many kinds see the same with Penstock and without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import penstock
from tests.conftest import OFF
from tests.extension.programs import PROGRAMS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.filterwarnings("ignore:.*loads all data into the driver's memory")
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_sees_the_same(name: str, spark: SparkSession, tmp_path: Path) -> None:
    folders = tmp_path / "plain", tmp_path / "enabled"
    for folder in folders:
        folder.mkdir()
    expected = PROGRAMS[name](spark, folders[0])
    with penstock.enabled(spark, config=OFF):
        assert PROGRAMS[name](spark, folders[1]) == expected
