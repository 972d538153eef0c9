"""Messages of Java exceptions without their stack."""

from __future__ import annotations

import pytest

from penstock.spark.errors import without_stack

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
