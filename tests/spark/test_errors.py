"""Messages of Java exceptions without their stack, and full disks that only the stack mentions."""

from __future__ import annotations

import pytest

from penstock.spark.errors import full_disk, without_stack

AWAITED = "org.apache.spark.SparkException: Exception thrown in awaitResult: \n\tat org.apache.spark.util.ThreadUtils"
CONDITION = "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading a file"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("java.lang.RuntimeException: no\n\tat a.B", "java.lang.RuntimeException: no"),
        (f"{CONDITION}\n\tat a.B\nCaused by: java.lang.RuntimeException: no\n\tat a.B", CONDITION),
        (
            f"{AWAITED}\nCaused by: {CONDITION}\n\tat a.B\nCaused by: java.lang.RuntimeException: no\n\tat a.B",
            CONDITION,
        ),
        (
            f"{AWAITED}\nCaused by: a.Wait: x\n\tat a.B\nCaused by: a.E: two\nlines\n\tat a.B\n\t... 9 more",
            "a.E: two\nlines",
        ),
        (AWAITED, "org.apache.spark.SparkException: Exception thrown in awaitResult:"),
    ],
    ids=["no cause", "condition", "awaited, with a condition", "awaited", "awaited without a cause"],
)
def test_the_stack_is_removed_from_a_java_message(text: str, expected: str) -> None:
    assert without_stack(text) == expected


NO_SPACE = "\n\tat a.B\nCaused by: java.io.IOException: No space left on device"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[TASK_WRITE_FAILED] Task failed while writing rows to file:/data/out. SQLSTATE: 58030",
            "the disk of file:/data/out",
        ),
        ("Job aborted: the stage failed", "the disk that rows are written to"),
        ("lost\n\tat org.apache.spark.shuffle.sort.A", "the disk of spark.local.dir"),
    ],
)
def test_a_full_disk_is_named(text: str, expected: str) -> None:
    assert str(full_disk(RuntimeError(text + NO_SPACE))).startswith(f"{expected} is full")
    assert full_disk(RuntimeError(text)) is None
