"""Properties of a part of a plan (``NativeParts.java``), and whether DuckDB computes the part faster than Spark."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.duckdb.worker.columns import Column
from penstock.duckdb.worker.functions import FunctionCall, UserFunction

MAX_OUTPUT_RATIO = 0.1
"""Maximum ratio of output to input rows of parts that have no aggregate and whose output Spark exchanges as rows.

DuckDB saves about 60 ns per input row, and each output row costs Spark about 400 ns more (TPC-H, scale 10).
"""
MIN_VALUES = 20_000_000
"""Minimum number of values (rows times columns) to read: DuckDB saves about 8 ns each, and starts in 0.1 s (TPC-DS)."""
MIN_SCATTERED_ROWS = 1_000_000
"""Minimum number of rows read if the output can be exchanged as columns, or if the part is expensive. Rows need not be
converted between the JVM and Arrow for exchanges and Python functions; DuckDB parses JSON about 2 µs per row faster."""
MIN_INPUT_ROWS = 10_000
"""Minimum number of exchanged rows that the largest task reads: starting DuckDB takes about 30 ms."""
BYTES_PER_ROW = 8
"""Estimated written size of an exchanged row: about two compressed integers."""
MEMORY_FACTOR = 4
"""Size of exchanged columns in memory, relative to their written size (TPC-H: 2 to 4)."""
MAX_JOINED_RATIO = 0.25
"""Maximum ratio of the rows that a task hashes to those that it reads: every task builds its own hash tables."""
MIN_BATCH_ROWS = 100
"""Minimum number of rows per task and subpartition for an exchange of columns: each batch has a fixed cost."""


@dataclass(frozen=True, slots=True)
class ScatterFacts:
    """How a part's rows are exchanged: the positions of the hashed columns, and the partitions of the exchange."""

    keys: tuple[int, ...]
    subpartitions: int


@dataclass(frozen=True, slots=True)
class PartFacts:
    """A part of a plan, and whether DuckDB can compute it.

    `table` is the table that the part reads; empty if it reads exchanged columns. `declined_reason` says why Spark
    computes the part; None if DuckDB does.

    `sql`, `columns` (of the output) and `inputs` are as in `penstock.duckdb.worker.worker.PartFunction`, and
    `read_columns`, `rebase_mode`, `partition_columns` and `compared_columns` as in
    `penstock.duckdb.worker.files.Files`.

    The part joins `build_count` broadcast sides and the key sets numbered `key_set_numbers` (keys of dynamic filters,
    see `penstock.spark.run.key_rows`); together they have `joined_rows` rows. `max_task_bytes` is an upper bound of the
    written bytes of the inputs that a task reads. `aggregates` says whether the part contains an aggregate. `scatter`
    is the hash exchange directly above the part; None if its rows cannot be exchanged as columns. `above_reason` says
    why DuckDB cannot compute the operator above; None if there is none or it is an exchange. `calls` are the Python
    functions that the worker calls. `parses_json` says whether the part parses JSON texts.
    """

    table: str
    declined_reason: str | None
    sql: str = field(default="", repr=False)
    read_columns: tuple[Column, ...] = field(default=(), repr=False)
    columns: tuple[Column, ...] = field(default=(), repr=False)
    rebase_mode: str = "CORRECTED"
    partition_columns: tuple[Column, ...] = field(default=(), repr=False)
    compared_columns: Mapping[str, bool] = field(default_factory=dict)
    inputs: tuple[tuple[Column, ...], ...] = ()
    build_count: int = 0
    key_set_numbers: tuple[int, ...] = ()
    joined_rows: int = 0
    max_task_bytes: int = 0
    aggregates: bool = False
    scatter: ScatterFacts | None = None
    above_reason: str | None = None
    calls: tuple[FunctionCall, ...] = field(default=(), repr=False)
    parses_json: bool = False

    @property
    def is_expensive(self) -> bool:
        """Whether the part calls Python functions or parses JSON."""
        return bool(self.calls or self.parses_json)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> PartFacts:
        """Convert the facts of ``NativeParts.java``."""
        if "declined_reason" in facts:
            return cls(facts["table"], facts["declined_reason"])
        scatter = facts.get("scatter")
        typed = {
            "read_columns": typed_columns(facts["read_columns"]),
            "partition_columns": typed_columns(facts["partition_columns"]),
            "columns": typed_columns(facts["columns"]),
            "inputs": tuple(map(typed_columns, facts["inputs"])),
            "key_set_numbers": tuple(facts["key_set_numbers"]),
            "calls": tuple(map(_function_call, facts["functions"])),
            "scatter": scatter and ScatterFacts(tuple(scatter["keys"]), scatter["subpartitions"]),
        }
        own = {name: value for name, value in facts.items() if name != "functions"}
        return cls(declined_reason=None, **{**own, **typed})

    def too_small_reason(self, tasks: int, task_rows: int) -> str | None:
        """Return why starting DuckDB, or building hash tables in each task, costs more than DuckDB saves; else None.

        Each of the `tasks` reads `task_rows` rows. For a part with inputs, `tasks` is 1: only its largest task counts.
        """
        if self.inputs:
            minimum = MIN_INPUT_ROWS
        else:
            saves_much = self.scatter is not None or self.is_expensive
            minimum = MIN_SCATTERED_ROWS if saves_much else MIN_VALUES // max(len(self.read_columns), 1)
        if tasks * task_rows < minimum:
            return f"about {tasks * task_rows} rows are too few to make up for DuckDB's start-up cost"
        if self.joined_rows > MAX_JOINED_RATIO * task_rows:
            return f"each task would hash {self.joined_rows} rows to join them with {task_rows}"
        return None

    @property
    def estimated_task_rows(self) -> int:
        """The number of rows of inputs that the largest task reads, estimated from their written size."""
        return self.max_task_bytes // BYTES_PER_ROW

    def memory_reason(self, memory: int) -> str | None:
        """Return why the inputs of the largest task do not fit into `memory` bytes, None if they do."""
        if self.max_task_bytes * MEMORY_FACTOR > memory:
            size = f"{self.max_task_bytes} bytes of input, about {MEMORY_FACTOR} times as much in memory"
            return f"a task would hold {size}"
        return None

    def too_many_rows_reason(self, output_ratio: float) -> str | None:
        """Return why Spark is faster for a part with this ratio of output to input rows, None if DuckDB is faster."""
        if self.aggregates or output_ratio <= MAX_OUTPUT_RATIO:
            return None
        reason = f"{output_ratio:.0%} of the rows remain, and returning them to Spark would cost more than DuckDB saves"
        return reason if self.above_reason is None else f"{self.above_reason}: {reason}"

    def is_exchanged_as_columns(self, task_rows: float) -> bool:
        """Whether the output is exchanged as columns if each task returns this number of rows."""
        return self.scatter is not None and task_rows >= MIN_BATCH_ROWS * self.scatter.subpartitions


def _function_call(facts: Mapping[str, Any]) -> FunctionCall:
    functions = tuple(
        UserFunction(
            tuple(map(b64decode, function["commands"])),
            tuple(function["positions"]),
            function["positions_by_name"],
            function["result_id"],
        )
        for function in facts["functions"]
    )
    typed = {name: typed_columns(facts[name]) for name in ("columns", "arguments", "results")}
    names = {name: tuple(facts[name]) for name in ("argument_names", "argument_nullable")}
    return FunctionCall(**{**facts, **typed, **names, "functions": functions})


def typed_columns(facts: list[dict[str, str]]) -> tuple[Column, ...]:
    """Convert columns that ``NativeParts.java`` describes."""
    return tuple(Column(**fields) for fields in facts)
