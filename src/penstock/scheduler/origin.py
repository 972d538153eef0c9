"""The origin of a job's query: its SQL text, its line in the user's program, and its description."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.base.masking import mask_sql

_MAX_TEXT, _MAX_NAME = 8000, 120
"""Maximum characters of a text (the list of jobs reads only 64 KiB of each log), and of a job name from a statement."""
UNNAMED = "query"
"""The name of a job whose query has no description, statement or line."""
_LEADING_COMMENTS = re.compile(r"(?:/\*.*?\*/\s*|--[^\n]*\n\s*)*", re.DOTALL)
"""Comments before a statement; tools such as dbt write one that is longer than a name."""
_CONNECT_PREFIX = "Spark Connect - "
"""The beginning of the call site that a Spark Connect server sets instead of the user's line."""


@dataclass(frozen=True, slots=True)
class QueryOrigin:
    """The origin of a query.

    `statement` is its SQL text with secrets masked; None if unknown or not written in SQL. `line` is the action in the
    user's program, as reported by PySpark, such as ``collect at job.py:3``. `description` is the user's name for the
    job, or description of its Spark jobs. `page` is the address in Spark's web UI of the SQL execution that waits for
    the rows. `is_delegated` says whether Spark delegated the query to Penstock, and itself runs only the last stage.
    """

    statement: str | None = None
    line: str | None = None
    description: str | None = None
    page: str | None = None
    is_delegated: bool = False

    @classmethod
    def of(
        cls,
        text: str | None,
        line: str | None,
        description: str | None,
        page: str | None = None,
        *,
        is_delegated: bool = False,
    ) -> QueryOrigin:
        """Return the origin of a query from its SQL text, call site and description: secrets masked, long texts cut."""
        statement = None if text is None else _mask_and_shorten(text)
        return cls(statement, _user_text(line), _user_text(description), page, is_delegated)

    @property
    def name(self) -> str:
        """The name of the job: the description, else the statement in one line, else the user's line or `UNNAMED`.

        Comments before the statement are omitted.
        """
        if self.description is not None:
            return self.description
        if self.statement is not None:
            text = " ".join(_LEADING_COMMENTS.sub("", self.statement, count=1).split())
            return text if len(text) <= _MAX_NAME else f"{_cut_at_word(text)} …"
        return self.line or UNNAMED


def _cut_at_word(text: str) -> str:
    """Return the first `_MAX_NAME` characters of a text, without an incomplete last word if more than half remains."""
    words = text[: _MAX_NAME + 1].rpartition(" ")[0]
    return words if len(words) > _MAX_NAME // 2 else text[:_MAX_NAME]


def _user_text(text: str | None) -> str | None:
    return None if text is None or text.startswith(_CONNECT_PREFIX) else _mask_and_shorten(text)


def _mask_and_shorten(text: str) -> str:
    masked = mask_sql(text.strip())  # masked before the cut, which may halve a secret
    return masked if len(masked) <= _MAX_TEXT else f"{masked[:_MAX_TEXT]} …"
