"""Errors after which Spark computes the rows."""

NOT_NATIVE = "penstock: not computed by DuckDB: "
"""The beginning of errors after which Spark is to compute the rows."""
CHANGED = "has changed since the query was planned"
"""Part of the error of a file that is another one when it is read: the next query may succeed."""


class NotNativeError(Exception):
    """The rows are not computed here."""

    def __init__(self, why: str) -> None:
        super().__init__(NOT_NATIVE + " ".join(why.split()))
