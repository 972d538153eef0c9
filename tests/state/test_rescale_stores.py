"""State stores and file formats: the output after a rescale equals that without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.state.changes import ALL, CHOSEN, cases, check_output_after_rescale
from tests.state.queries import KINDS_OF_FILES, QUERIES_IN_MEMORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = cases(KINDS_OF_FILES, ALL) + cases(QUERIES_IN_MEMORY, CHOSEN)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "method", "numbers"), CASES)
def test_later_output_is_the_same(
    spark: SparkSession, stopped: Any, tmp_path: Path, name: Any, method: Any, numbers: Any
) -> None:
    check_output_after_rescale(spark, stopped(name), tmp_path / "checkpoint", numbers, method)
