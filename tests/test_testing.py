"""`penstock.testing.read_splits`: what it takes from a source, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.connectors import Predicate, SplitSource
from penstock.testing import MIB, read_splits

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Numbers(SplitSource):
    """So many numbers, each in a split of its own; the batches are made by a function."""

    count: int
    batch: object = None
    schema = StructType().add("n", "long").add("text", "string")

    def enumerate_splits(self, context: Any) -> Any:
        assert context.columns is not None
        kept = {value for predicate in context.predicates for value in predicate.values} or set(range(self.count))
        assert context.data_volume_per_task == 16 * MIB
        return [n for n in range(self.count) if n in kept]

    def split_size(self, split: Any) -> Any:
        return 10 * (split == 0) + 1

    def read_split(self, split: Any, columns: Any) -> Iterator[Any]:
        values = {"n": [split], "text": [f"t{split}"]}
        make = self.batch or (lambda columns, values: pa.RecordBatch.from_pydict({c: values[c] for c in columns}))
        yield make(columns, values)


def test_everything_is_read_once_by_the_tasks_of_a_job() -> None:
    read = read_splits(Numbers(5), parallelism=2)
    assert read.splits == (0, 1, 2, 3, 4)
    assert read.tasks == ((0,), (1, 2, 3, 4))  # the large split has a task of its own
    assert read.rows == [(n, f"t{n}") for n in range(5)]


@pytest.mark.parametrize(
    ("facts", "rows"),
    [
        ({"columns": ["text"]}, [("t0",), ("t1",)]),
        ({"columns": ["text", "n"]}, [("t0", 0), ("t1", 1)]),
        ({"predicates": [Predicate("=", "n", (1,))]}, [(1, "t1")]),
        ({"predicates": [Predicate("=", "n", (7,))]}, []),
    ],
)
def test_what_the_job_wants(facts: dict[str, Any], rows: Any) -> None:
    assert read_splits(Numbers(2), **facts).rows == rows


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (lambda columns, values: pa.RecordBatch.from_pydict(values), r"gave the columns \['n', 'text'\] where \['n'\]"),
        (lambda columns, values: pa.RecordBatch.from_pydict({"n": ["0"]}), r"types \[DataType\(string\)\], the schema"),
        (lambda columns, values: pa.RecordBatch.from_pydict({"n": pa.array([0], pa.int32())}), "int32"),
    ],
    ids=["other columns", "other types", "a narrower type"],
)
def test_batches_that_are_not_as_the_schema_says(batch: Any, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        read_splits(Numbers(2, batch), columns=["n"])


def test_a_source_that_cannot_go_to_a_task() -> None:
    import threading

    with pytest.raises(TypeError, match="pickle"):
        read_splits(Numbers(2, threading.Lock()))
