"""The seconds that a job gained against its last run and against plain Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.history.record import ComparedRecord, JobRecord
from penstock.web import formatting
from penstock.web.gains import gains

NOW = 1000.0
PAGE = "/ui/jobs/b/compare/a"
NOT_MEASURED = "Plain Spark was not measured. To measure it: penstock verify report.py"


def run(job_id: str, seconds: float, compared: Any = (), **more: Any) -> JobRecord:
    """Return a finished run that took some seconds, and was maybe compared with plain Spark."""
    outputs = [ComparedRecord("out", "equal", *both) for both in compared]
    query = {"line": "collect at report.py:12"}
    record = JobRecord(job_id, "job", "FINISHED", 100.0, 100.0 + seconds, query=query, compared=outputs)
    return replace(record, **more)


LAST = run("a", 12.0)
DATE = formatting.clock(100.0)


@pytest.mark.parametrize(
    ("job", "last", "compared", "expected"),
    [
        (run("b", 9.0), None, None, [(NOT_MEASURED, "")]),
        (
            run("b", 9.0),
            LAST,
            None,
            [(f"3.0 s faster than the last run ({DATE}): 9.0 s instead of 12.0 s", PAGE), (NOT_MEASURED, "")],
        ),
        (
            run("b", 15.0),
            LAST,
            None,
            [(f"3.0 s slower than the last run ({DATE}): 15.0 s instead of 12.0 s", PAGE), (NOT_MEASURED, "")],
        ),
        (
            run("b", 12.01),
            LAST,
            None,
            [(f"No faster or slower than the last run ({DATE}): 12.0 s instead of 12.0 s", PAGE), (NOT_MEASURED, "")],
        ),
        (
            run("b", 1.0, state="RUNNING", ended=None),
            LAST,
            None,
            [(f"The last run ({DATE}) took 12.0 s", PAGE), (NOT_MEASURED, "")],
        ),
        # the last run includes 11 seconds of plain Spark
        (
            run("b", 9.0),
            run("a", 21.0, [(10.0, 11.0)]),
            run("a", 21.0, [(10.0, 11.0)]),
            [
                (f"1.0 s faster than the last run ({DATE}): 9.0 s instead of 10.0 s", PAGE),
                (
                    (
                        f"1.0 s faster than plain Spark: 10.0 s instead of 11.0 s (in the run of {DATE}, where plain Spark ran "
                        "the same queries afterwards, and neither committed)"
                    ),
                    "/ui/jobs/a",
                ),
            ],
        ),
        (
            run("b", 30.0, [(10.0, 5.0), (10.0, 6.5)]),
            None,
            run("b", 30.0, [(10.0, 5.0), (10.0, 6.5)]),
            [
                (
                    (
                        "1.5 s faster than plain Spark: 10.0 s instead of 11.5 s (in this run, where plain Spark ran the same "
                        "queries afterwards, and neither committed)"
                    ),
                    "",
                )
            ],
        ),
        # plain Spark did not run one of the outputs
        (run("b", 9.0), None, run("a", 21.0, [(10.0, 11.0), (10.0, None)]), [(NOT_MEASURED, "")]),
        # Spark runs the last stage of a delegated query, so the durations cannot be compared
        (
            run("b", 9.0),
            None,
            run("a", 21.0, [(10.0, 11.0)], query={"of_spark": True}),
            [
                (
                    (
                        f"Plain Spark took 11.0 s in the run of {DATE}, and Penstock 10.0 s without the last stage, which Spark "
                        "runs after the job"
                    ),
                    "/ui/jobs/a",
                )
            ],
        ),
    ],
)
def test_gains(job: JobRecord, last: JobRecord | None, compared: JobRecord | None, expected: Any) -> None:
    assert [(gain.text, gain.href) for gain in gains(job, NOW, last, compared, PAGE)] == expected
