"""`penstock.testing.read_splits` reads a source as a job does, and checks its batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.connectors import Predicate, SplitSource
from penstock.testing import MIB, read_splits


@dataclass(frozen=True)
class Numbers(SplitSource):
    """Source of `count` numbers, each in its own split; `batch` creates the batches."""

    count: int
    batch: object = None
    schema = StructType().add("n", "long").add("text", "string")

    def enumerate_splits(self, context: Any) -> Any:
        assert context.columns is not None
        values = {value for predicate in context.predicates for value in predicate.values} or set(range(self.count))
        assert context.data_volume_per_task == 16 * MIB
        return [n for n in range(self.count) if n in values]

    def split_size(self, split: Any) -> Any:
        return 10 * (split == 0) + 1

    def read_split(self, split: Any, columns: Any) -> Iterator[Any]:
        values = {"n": [split], "text": [f"t{split}"]}
        make = self.batch or (lambda columns, values: pa.RecordBatch.from_pydict({c: values[c] for c in columns}))
        yield make(columns, values)


def test_each_split_is_read_once_by_the_tasks_of_a_job() -> None:
    reading = read_splits(Numbers(5), parallelism=2)
    assert reading.splits == (0, 1, 2, 3, 4)
    assert reading.tasks == ((0,), (1, 2, 3, 4))  # the large split has a task of its own
    assert reading.rows == [(n, f"t{n}") for n in range(5)]


@pytest.mark.parametrize(
    ("facts", "rows"),
    [
        ({"columns": ["text"]}, [("t0",), ("t1",)]),
        ({"columns": ["text", "n"]}, [("t0", 0), ("t1", 1)]),
        ({"predicates": [Predicate("=", "n", (1,))]}, [(1, "t1")]),
        ({"predicates": [Predicate("=", "n", (7,))]}, []),
    ],
)
def test_columns_and_predicates_are_passed_to_the_source(facts: dict[str, Any], rows: Any) -> None:
    assert read_splits(Numbers(2), **facts).rows == rows


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (
            lambda columns, values: pa.RecordBatch.from_pydict(values),
            r"returned the columns \['n', 'text'\] instead of \['n'\]",
        ),
        (lambda columns, values: pa.RecordBatch.from_pydict({"n": ["0"]}), r"types \[DataType\(string\)\] instead of"),
        (lambda columns, values: pa.RecordBatch.from_pydict({"n": pa.array([0], pa.int32())}), "int32"),
    ],
    ids=["other columns", "other types", "a narrower type"],
)
def test_batches_that_differ_from_the_schema_are_refused(batch: Any, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        read_splits(Numbers(2, batch), columns=["n"])


def test_a_source_that_cannot_be_pickled_is_refused() -> None:
    import threading

    with pytest.raises(TypeError, match="pickle"):
        read_splits(Numbers(2, threading.Lock()))
