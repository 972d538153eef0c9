"""DuckDB without Spark, in the process of the benchmark."""

import re
from pathlib import Path

import duckdb


class DuckDb:
    """DuckDB with a thread for each core and the parquet files of a folder as tables."""

    def __init__(self, data: Path, cores: int) -> None:
        self._db = duckdb.connect(config={"threads": cores})
        self._db.execute("SET TimeZone = 'UTC'")
        for file in sorted(data.glob("*.parquet")):
            self._db.execute(f"CREATE VIEW {file.stem} AS FROM '{file}'")

    def rows(self, text: str) -> list[tuple]:
        """Return the rows of a query in Spark's SQL, whose groups of regular expressions DuckDB names differently."""
        return self._db.execute(re.sub(r"'\$(\d)'", r"'\\\1'", text)).fetchall()
