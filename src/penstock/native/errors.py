"""What is not computed by DuckDB."""

NOT_NATIVE = "penstock: not computed by DuckDB: "
"""The beginning of errors after which Spark is to compute the rows."""


class NotNativeError(Exception):
    """The rows are not computed here."""

    def __init__(self, why: str) -> None:
        super().__init__(NOT_NATIVE + " ".join(why.split()))
