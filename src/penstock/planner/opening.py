"""Sinks before a job is planned: whether they get in each other's way, and whether each can be written."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from itertools import combinations
from typing import TYPE_CHECKING

from penstock.commit import place_of
from penstock.errors import PenstockError, SinkError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from penstock.commit import Access
    from penstock.connectors.base import SinkJob
    from penstock.planner.outputs import Output

log = logging.getLogger("penstock.commit")


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
        if _overlap(mine, others):
            raise _same_place(one, other, max(mine, others, key=len))


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
    opened: list[SinkJob] = []
    try:
        for output in outputs:
            with _asked_for_by(output):
                opened.append(output.sink.open(spark))
        _check_folders(outputs, opened)
        for output, sink in zip(outputs, opened, strict=True):
            with _asked_for_by(output):
                sink.check(output.df.schema)
    except BaseException:
        abort_sinks(opened)
        raise
    return opened


def abort_sinks(opened: Sequence[SinkJob]) -> None:
    """Abort sinks whose job does not start; what one of them raises is logged."""
    for sink in opened:
        try:
            sink.abort()
        except Exception as error:  # noqa: BLE001 - sinks of users raise errors of their own
            log.warning("a sink of a job that did not start could not be aborted: %s", first_line(error))


def _check_folders(outputs: Sequence[Output], opened: Sequence[SinkJob]) -> None:
    """Refuse what `check_places` cannot see: folders under other names, and two sinks that would make one folder."""
    found = [
        (output, job, place_of(job.target_folder))
        for output, job in zip(outputs, opened, strict=True)
        if job.target_folder is not None and job.nothing_to_write is None
    ]
    for (one, mine, place), (other, others, second) in combinations(found, 2):
        only_add = one.sink.adds and other.sink.adds and not (mine.makes_target or others.makes_target)
        if not only_add and _overlap(place, second):
            raise _same_place(one, other, max(place, second, key=len))


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _same_place(one: Output, other: Output, place: str) -> SinkError:
    error = SinkError.same_place(one.sink.name, other.sink.name, place)
    error.tell_line(other.location)
    return error


@contextmanager
def _asked_for_by(output: Output) -> Iterator[None]:
    try:
        yield
    except PenstockError as error:
        error.tell_line(output.location)
        raise
