"""The methods of an `Environment` that return the rows of a DataFrame."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.base.arguments import check_data_frame, check_type
from penstock.base.location import current_user_line
from penstock.entry.results import MaterializeSink, ResultSink
from penstock.planner.outputs import Output
from penstock.spark.plans.dataframes import format_rows

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

    from penstock.scheduler.job import Job


class ResultActions(ABC):
    """Base class of `Environment`: its methods that run a DataFrame as a job and return the rows."""

    def collect(self, df: DataFrame, *, name: str | None = None) -> list[Row]:
        """Return the rows of a DataFrame; `name` is the name of the job, as for `execute`.

        >>> env.collect(spark.range(3).orderBy("id"))
        [Row(id=0), Row(id=1), Row(id=2)]
        """
        return list(self._fetch(df, ResultSink("collect", lambda d: d.collect()), name))

    def to_arrow(self, df: DataFrame, *, name: str | None = None) -> pa.Table:
        """Return a DataFrame's rows as an Arrow table; `name` is the name of the job, as for `execute`.

        >>> env.to_arrow(spark.range(3).orderBy("id")).to_pydict()
        {'id': [0, 1, 2]}
        """
        return self._fetch(df, ResultSink("to_arrow", lambda d: d.toArrow()), name)

    def to_pandas(self, df: DataFrame, *, name: str | None = None) -> pd.DataFrame:
        """Return a DataFrame's rows as a pandas DataFrame; `name` is the name of the job, as for `execute`.

        >>> env.to_pandas(spark.range(3).orderBy("id"))["id"].tolist()
        [0, 1, 2]
        """
        return self._fetch(df, ResultSink("to_pandas", lambda d: d.toPandas()), name)

    def count(self, df: DataFrame, *, name: str | None = None) -> int:
        """Return the number of rows of a DataFrame; `name` is the name of the job, as for `execute`.

        >>> env.count(spark.range(100).where("id % 7 = 0"))
        15
        """
        check_data_frame(df, "count")
        (row,) = self._fetch(df.groupBy().count(), ResultSink("count", lambda d: d.collect()), name)
        return int(row[0])

    def show(
        self,
        df: DataFrame,
        n: int = 20,
        truncate: bool | int = True,  # noqa: FBT001, FBT002 - as in DataFrame.show
        vertical: bool = False,  # noqa: FBT001, FBT002
        *,
        name: str | None = None,
    ) -> None:
        """Print the first `n` rows as ``DataFrame.show`` does.

        The job fetches `n` + 1 rows, to detect whether there are more. `name` is its name, as for `execute`.

        >>> env.show(spark.range(1))
        +---+
        | id|
        +---+
        |  0|
        +---+
        <BLANKLINE>
        """
        check_data_frame(df, "show")
        check_type(n, int, "show", "a number of rows", "as in env.show(df, 50)")
        check_type(truncate, int, "show", "True, False or a number of characters as truncate")
        check_type(vertical, bool, "show", "True or False as vertical")
        sink = ResultSink("show", partial(format_rows, n, truncate, vertical))
        sys.stdout.write(f"{self._fetch(df.limit(max(n, 0) + 1), sink, name)}\n")

    def materialize(self, df: DataFrame, *, name: str | None = None) -> DataFrame:
        """Run a DataFrame and return a DataFrame that reads the computed rows, with measured statistics.

        Shuffle files hold the rows while the returned DataFrame exists. `name` is the job's name, as for `execute`.

        >>> squares = env.materialize(spark.range(4).selectExpr("id * id AS square"))
        >>> env.count(squares), env.count(squares.where("square > 3"))
        (4, 2)
        """
        result: DataFrame = self._fetch(df, MaterializeSink(), name)
        return result

    def _fetch(self, df: DataFrame, sink: ResultSink, name: str | None) -> Any:
        check_data_frame(df, sink.name)
        self._run([Output(df, sink, location=current_user_line())], job_line(sink.name), name)
        value, sink.value = sink.value, None  # the sink must not retain the rows
        return value

    @abstractmethod
    def _run(self, outputs: Sequence[Output], line: str, name: str | None) -> Job:
        """Run outputs as a job and wait for its end; the job is called `name`, or `line` if `name` is None."""


def job_line(action: str) -> str:
    """Return a job name as in Spark's UI, ``collect at job.py:12``; only the action if the user's line is unknown."""
    line = current_user_line()
    return action if line is None else f"{action} at {line.short}"
