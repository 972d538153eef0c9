"""Tables of files, registered under names for statements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.flags import Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

FORMAT_OF_SUFFIX = {".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc", ".txt": "text"}

TABLE = click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="NAME=PATH",
    type=Pair("NAME=PATH", "orders=data/orders.parquet"),
    help="A table: a file or folder. Can be repeated.",
)


def register_tables(spark: SparkSession, tables: Iterable[tuple[str, str]]) -> None:
    """Create temporary views from names and paths."""
    for name, path in tables:
        read_path(spark, path).createOrReplaceTempView(name)


def read_path(spark: SparkSession, path: str) -> DataFrame:
    """Read a file or folder in the format of its suffix; Parquet without a suffix."""
    from penstock.connectors import FileSource

    kind = FORMAT_OF_SUFFIX.get(Path(path).suffix.lower(), "parquet")
    options = {"header": "true", "inferSchema": "true"} if kind == "csv" else {}
    return FileSource(path, kind, options=options).read(spark)
