"""Where the query of a job comes from, if Spark handed it over."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.masking import mask_sql

_WHOLE, _SHORT = 8000, 120
"""Characters kept of a statement, and of a job's name; lists read the first 64 KiB of an event log."""
UNNAMED = "query"
"""What a job is called of which nothing is known."""
_OF_CONNECT = "Spark Connect - "
"""How a Spark Connect server describes the request of a client, in place of the user's line."""


@dataclass(frozen=True, slots=True)
class QueryOrigin:
    """Where a query comes from.

    Parameters
    ----------
    statement
        The SQL text that it was given as, without its secrets; None if it was not.
    line
        The action in the user's program, as PySpark tells it, such as ``collect at job.py:3``.
    description
        The job description that the user has set.
    page
        The address of Spark's own page of the execution that waits for the rows.
    is_of_spark
        Whether Spark handed it over, so that Spark runs the last stage.
    """

    statement: str | None = None
    line: str | None = None
    description: str | None = None
    page: str | None = None
    is_of_spark: bool = False

    @classmethod
    def of(
        cls,
        text: str | None,
        line: str | None,
        description: str | None,
        page: str | None = None,
        *,
        is_of_spark: bool = False,
    ) -> QueryOrigin:
        """Return the origin of a query: its SQL text as it was written, and the description of its Spark jobs."""
        statement = None
        if text is not None:
            statement = _shown(text)
        return cls(statement, _of_user(line), _of_user(description), page, is_of_spark)

    @property
    def name(self) -> str:
        """What the job is called: as the user says, else by its statement in one line, else by the user's line."""
        if self.description is not None:
            return self.description
        if self.statement is not None:
            text = " ".join(self.statement.split())
            return text if len(text) <= _SHORT else f"{_cut(text)} …"
        return self.line or UNNAMED


def _cut(text: str) -> str:
    """Return the beginning of a text, up to the end of a word unless the word is a long one."""
    words = text[: _SHORT + 1].rpartition(" ")[0]
    return words if len(words) > _SHORT // 2 else text[:_SHORT]


def _of_user(text: str | None) -> str | None:
    return None if text is None or text.startswith(_OF_CONNECT) else _shown(text)


def _shown(text: str) -> str:
    """Return the beginning of a text without its secrets."""
    # First what may be looked at: long texts take long to mask. Twice as much, lest half a secret remains.
    shown = mask_sql(text[: 2 * _WHOLE].strip())
    return shown if len(shown) <= _WHOLE else f"{shown[:_WHOLE]} …"
