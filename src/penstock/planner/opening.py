"""Opens the sinks of a job before it is planned, and checks for conflicts and unwritable targets."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import TYPE_CHECKING

from penstock.commit import Access, location_of
from penstock.errors import PenstockError, SinkError, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.connectors.core.base import SinkJob
    from penstock.planner.outputs import Output

log = logging.getLogger("penstock.commit")


def check_locations(outputs: Sequence[Output]) -> None:
    """Raise `SinkError` if the locations of two sinks are equal or nested, unless both sinks only add rows."""
    for first, second in combinations(outputs, 2):
        first_location, second_location = first.sink.location, second.sink.location
        if first_location is None or second_location is None or (first.sink.adds and second.sink.adds):
            continue
        if _overlap(first_location, second_location):
            raise _same_location(first, second, max(first_location, second_location, key=len))


def recover_sinks(access: Access, outputs: Sequence[Output]) -> None:
    """Complete or roll back interrupted commits of drivers that have died, at the targets of outputs.

    Raises `PenstockError` if a target cannot be reached or is invalid; the error has the source line of the user.
    """
    for output in outputs:
        with _with_source_line(output):
            output.sink.recover(access)


def open_sinks(spark: SparkSession, outputs: Sequence[Output]) -> list[SinkJob]:
    """Open all sinks before the job starts, and let each sink check the schema of its rows; abort all after an error.

    Raises `SinkError` if a target cannot be written; the error has the source line of the user.
    """
    opened: list[SinkJob] = []
    try:
        for output in outputs:
            with _with_source_line(output):
                opened.append(output.sink.open(spark))
        _check_folders(outputs, opened)
        for output, sink_job in zip(outputs, opened, strict=True):
            with _with_source_line(output):
                sink_job.check(output.df.schema)
    except BaseException:
        abort_sinks(opened)
        raise
    return opened


def abort_sinks(opened: Sequence[SinkJob]) -> None:
    """Abort the sinks of a job that does not start; their errors are logged."""
    for sink_job in opened:
        try:
            sink_job.abort()
        except Exception as error:  # noqa: BLE001 - user-defined sinks may raise any error
            log.warning("a sink of a job that did not start could not be aborted: %s", first_line(error))


def _check_folders(outputs: Sequence[Output], opened: Sequence[SinkJob]) -> None:
    """Raise `SinkError` if target folders are equal or nested, unless both sinks only add rows to existing targets."""
    targets = [
        (output, sink_job, location_of(sink_job.target_folder))
        for output, sink_job in zip(outputs, opened, strict=True)
        if sink_job.target_folder is not None and sink_job.nothing_to_write is None
    ]
    for (first, first_job, first_folder), (second, second_job, second_folder) in combinations(targets, 2):
        creates_target = first_job.creates_target or second_job.creates_target
        only_add = first.sink.adds and second.sink.adds and not creates_target
        if not only_add and _overlap(first_folder, second_folder):
            raise _same_location(first, second, max(first_folder, second_folder, key=len))


def _overlap(first: str, second: str) -> bool:
    return f"{first}/".startswith(f"{second}/") or f"{second}/".startswith(f"{first}/")


def _same_location(first: Output, second: Output, location: str) -> SinkError:
    error = SinkError(
        f"the sinks {first.sink.name} and {second.sink.name} of this job write to the same location: {location}",
        cause="each would overwrite the rows of the other",
        hint="write each sink to another path or table, or write the union of the rows with one sink",
    )
    error.set_line(second.location)
    return error


@contextmanager
def _with_source_line(output: Output) -> Iterator[None]:
    try:
        yield
    except PenstockError as error:
        error.set_line(output.location)
        raise
