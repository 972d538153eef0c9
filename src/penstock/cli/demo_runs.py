"""The comparison that `penstock demo` measures: the same queries on plain Spark and on Penstock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.options import NATIVE
from penstock.entry.environment import Environment
from penstock.errors import RowsDifferError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.run.finished_stages import work_after

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from penstock.scheduler.job import Job


class System(Enum):
    """A system that runs the queries; the value is its name for users."""

    SPARK = "Spark with AQE"
    STEPS = "Penstock without DuckDB"
    PENSTOCK = "Penstock"


@dataclass(frozen=True, slots=True)
class Question:
    """A query of the demo, with a title for users; `is_ordered` says whether it sets the order of all of its rows."""

    title: str
    statement: str
    is_ordered: bool = False


QUESTIONS = (
    Question(
        "Revenue of a few customers, by country",
        "SELECT country, count(*) AS orders, sum(amount) AS revenue FROM orders JOIN customers USING (customer_id) "
        "WHERE name LIKE '%99' AND segment = 'consumer' GROUP BY country",
    ),
    Question(
        "Best customers of a country",
        "SELECT customer_id, name, revenue FROM customers JOIN (SELECT customer_id, sum(amount) AS revenue "
        "FROM orders GROUP BY customer_id) USING (customer_id) WHERE country = 'country 7' "
        "ORDER BY revenue DESC, customer_id LIMIT 20",
        is_ordered=True,
    ),
    Question(
        "Revenue by segment and category",
        "SELECT segment, category, count(*) AS orders, sum(amount) AS revenue FROM orders "
        "JOIN customers USING (customer_id) JOIN products USING (product_id) GROUP BY segment, category",
    ),
)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a query: its duration, and the completed tasks and shuffled bytes of its finished stages."""

    seconds: float
    tasks: int
    shuffled_bytes: int


class Comparison:
    """Runs the queries on each system in the same Spark session, and compares their rows.

    Attributes
    ----------
    runs
        The counted runs of each query on each system.
    jobs
        The job of the last run of each query on Penstock.
    compared_rows
        The number of rows of Penstock that were compared with Spark's; all of them were equal.
    """

    def __init__(self, spark: SparkSession, tables: Mapping[str, Path]) -> None:
        for name, file in tables.items():
            spark.read.parquet(str(file)).createOrReplaceTempView(name)
        self._spark = spark
        self._bridge = Bridge(spark)
        self._environments = {
            System.STEPS: Environment(spark, config={NATIVE.key: False}, progress=False),
            System.PENSTOCK: Environment(spark, progress=False),
        }
        self._last_stage = -1
        self.runs: dict[tuple[Question, System], list[Run]] = {}
        self.jobs: dict[tuple[Question, System], Job] = {}
        self.compared_rows = 0

    def run_round(self, number: int) -> Iterator[tuple[System, float]]:
        """Run all queries on each system, and yield its total duration; the order of the systems depends on the number.

        In three rounds, each system is first once, and none always follows the same other system. Round 0 warms up: its
        runs are not counted, but their rows are compared, too.

        Raises
        ------
        RowsDifferError
            If the rows of a query on Penstock differ from Spark's.
        """
        orders = list(permutations(System))
        rows: dict[tuple[Question, System], list[Row]] = {}
        for system in orders[2 * number % len(orders)]:
            total = 0.0
            for question in QUESTIONS:
                rows[question, system], run = self._measure(lambda: self._collect(question, system))  # noqa: B023
                total += run.seconds
                if number:
                    self.runs.setdefault((question, system), []).append(run)
            yield system, total
        self._compare(rows)

    def total(self, system: System, questions: Sequence[Question]) -> Run:
        """Return the sum over queries of the median duration, and of the tasks and bytes of the last run."""
        runs = [self.runs[question, system] for question in questions]
        return Run(
            sum(statistics.median(run.seconds for run in runs_of_query) for runs_of_query in runs),
            sum(runs_of_query[-1].tasks for runs_of_query in runs),
            sum(runs_of_query[-1].shuffled_bytes for runs_of_query in runs),
        )

    def _collect(self, question: Question, system: System) -> list[Row]:
        df = self._spark.sql(question.statement)
        if system is System.SPARK:
            return df.collect()
        env = self._environments[system]
        rows = env.collect(df, name=f"{question.title}, {system.value}")
        if env.last_job:
            self.jobs[question, system] = env.last_job
        return rows

    def _measure(self, collect: Callable[[], list[Row]]) -> tuple[list[Row], Run]:
        self._last_stage = work_after(self._bridge, self._last_stage).last_stage
        start = time.perf_counter()
        rows = collect()
        seconds = time.perf_counter() - start
        work = work_after(self._bridge, self._last_stage)
        return rows, Run(seconds, work.tasks, work.shuffled_bytes)

    def _compare(self, rows: Mapping[tuple[Question, System], list[Row]]) -> None:
        for question in QUESTIONS:
            arrange = list if question.is_ordered else sorted
            expected = arrange(rows[question, System.SPARK])
            for system in self._environments:
                if arrange(rows[question, system]) != expected:
                    raise RowsDifferError(f"{question.title}: the rows of {system.value} differ from Spark's")
                self.compared_rows += len(expected)
