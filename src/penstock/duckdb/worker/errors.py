"""Errors that make Spark compute the rows instead of DuckDB."""

NOT_NATIVE = "penstock: not computed by DuckDB: "
"""Prefix of the errors after which Spark computes the rows."""
CHANGED = "has changed since the query was planned"
"""Part of the error of a file that was replaced after planning; the next query may succeed."""


class NotNativeError(Exception):
    """DuckDB cannot compute the rows, so Spark must."""

    def __init__(self, reason: str) -> None:
        super().__init__(NOT_NATIVE + " ".join(reason.split()))
