"""Options for the tasks of Spark's writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.config import Configuration
from penstock.extension.runner import WriterSink
from penstock.spark.run.query_hook import WriteCommand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIONS: Any = None  # of a sink; Spark's writer has none
SIZES = [
    ({}, False, None),  # the default is Spark's own
    ({"sink.target-file-size": "64 mb"}, False, 64 << 20),
    ({"sink.target-file-size": "64 mb"}, True, None),  # each task writes a file for each bucket
]


def fetch(df: DataFrame) -> None:
    """Take no rows."""


@pytest.mark.parametrize(("options", "has_buckets", "expected"), SIZES)
def test_the_size_of_files(options: dict[str, str], *, has_buckets: bool, expected: int | None) -> None:
    sink = WriterSink(fetch, WriteCommand((), has_buckets), Configuration.load(options))
    assert sink.file_size(OPTIONS) == expected


@pytest.mark.parametrize("has_buckets", [True, False])
def test_the_number_of_tasks(*, has_buckets: bool) -> None:
    sink = WriterSink(fetch, WriteCommand(("day",), has_buckets), Configuration.load({"sink.parallelism": 3}))
    assert (sink.parallelism, sink.partition_columns) == (3, ("day",))
