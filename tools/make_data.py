"""Generate the data of tests and benchmarks: the tables of TPC-H and TPC-DS as Parquet, and the queries as JSON."""

import argparse
import json
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import duckdb


def make_tpch(folder: Path, scale: str) -> None:
    if (folder / ".done").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    print(f"Generating TPC-H at scale {scale} in {folder}")
    generator = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run([generator, "parquet", "-s", scale, "--output-dir", folder, "-q"], check=True)
    (folder / ".done").touch()


def load(db: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load a DuckDB extension from its Python package."""
    (folder,) = (resources.files(f"duckdb_extension_{name}") / "extensions").iterdir()
    db.execute(f"LOAD '{folder / name}.duckdb_extension'")


def make_tpcds(folder: Path, scale: str) -> None:
    if (folder / ".done").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"Generating TPC-DS at scale {scale} in {folder}")
    database = folder / "tables.db"  # on disk, as a large scale does not fit into memory
    with duckdb.connect(str(database)) as db:
        load(db, "tpcds")
        db.execute("SET enable_progress_bar = false")
        db.execute(f"CALL dsdgen(sf={scale})")
        for (table,) in db.execute("SHOW TABLES").fetchall():
            db.execute(f"COPY {table} TO '{folder / table}.parquet' (FORMAT parquet)")
    database.unlink()
    (folder / ".done").touch()


def make_queries(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as db:
        for name in ("tpch", "tpcds"):
            load(db, name)
            queries = db.execute(f"SELECT query_nr, query FROM {name}_queries()").fetchall()  # noqa: S608
            # Spark quotes identifiers with backticks.
            texts = {number: text.replace('"', "`") if name == "tpcds" else text for number, text in queries}
            (folder / f"{name}.json").write_text(json.dumps(texts, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", default="0.1", help="scale factor of TPC-H and TPC-DS (default: 0.1)")
    arguments = parser.parse_args()
    make_tpch(arguments.folder / f"tpch-{arguments.scale}", arguments.scale)
    make_tpcds(arguments.folder / f"tpcds-{arguments.scale}", arguments.scale)
    make_queries(arguments.folder / "queries")
