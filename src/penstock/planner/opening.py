"""Sinks before a job is planned: whether they get in each other's way, and whether each can be written."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import combinations
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from penstock.commit import Access
    from penstock.connectors.base import SinkJob
    from penstock.planner.outputs import Output


def check_places(outputs: Sequence[Output]) -> None:
    """Refuse two sinks of which one would replace rows of the other.

    Raises
    ------
    SinkError
        If they write to one table or folder, or one into a folder of the other, and not both only add rows.
    """
    for one, other in combinations(outputs, 2):
        mine, others = one.sink.place, other.sink.place
        if mine is None or others is None or (one.sink.adds and other.sink.adds):
            continue
        if f"{mine}/".startswith(f"{others}/") or f"{others}/".startswith(f"{mine}/"):
            error = SinkError.same_place(one.sink.name, other.sink.name, max(mine, others, key=len))
            error.tell_line(other.location)
            raise error


def recover_sinks(access: Access, outputs: Sequence[Output]) -> None:
    """Complete or undo interrupted commits of dead drivers at the targets.

    Raises
    ------
    PenstockError
        If a target cannot be reached, or cannot be one; it names the user's line.
    """
    for output in outputs:
        with _asked_for_by(output):
            output.sink.recover(access)


def open_sinks(spark: SparkSession, outputs: Sequence[Output]) -> list[SinkJob]:
    """Open all sinks, and let each look at the columns of its rows; nothing has run then.

    Raises
    ------
    SinkError
        If a target cannot be written; it names the user's line.
    """
    opened = []
    for output in outputs:
        with _asked_for_by(output):
            opened.append(output.sink.open(spark))
    for output, sink in zip(outputs, opened, strict=True):
        with _asked_for_by(output):
            sink.check(output.df.schema)
    return opened


@contextmanager
def _asked_for_by(output: Output) -> Iterator[None]:
    try:
        yield
    except PenstockError as error:
        error.tell_line(output.location)
        raise
