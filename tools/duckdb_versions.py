"""Run tests of native execution with other releases of DuckDB than the installed release.

Each release is installed once, from pip's package index, into a separate folder. The folder is first in PYTHONPATH,
which Spark's Python workers inherit. Both the driver and a worker must import this release.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = [
    "tests/duckdb/test_engine_traps.py",
    "tests/duckdb/expressions/test_registry.py",
    "tests/duckdb/test_foreign_files.py",
    "tests/duckdb/test_json.py",
    "tests/duckdb/worker/test_products.py",
    "tests/golden/test_golden.py::test_rows_and_errors_are_those_of_plain_spark[windows-ansi]",
]
"""Tests of expressions, JSON, products, windows and of reading files, in which releases differ."""
RELEASE_PROGRAM = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

def release(_):
    import duckdb
    return f"{duckdb.__version__} {Path(duckdb.__file__).parent.parent}"

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(release(None))
print(spark.sparkContext.parallelize([0], 1).map(release).first())
spark.stop()
"""
"""Program that prints the release and folder of DuckDB, in the driver and in a Python worker."""


def install(version: str, folder: Path) -> Path:
    """Return the folder of a release, such as 1.5.0 or 2.0.* (the newest); install the release if needed."""
    target = folder / version.replace("*", "newest")
    if (target / ".done").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    installed = subprocess.run(
        [*pip, "--target", str(target), f"duckdb=={version}"], capture_output=True, text=True, check=False
    )
    if installed.returncode:
        raise SystemExit(f"duckdb {version} cannot be installed:\n{installed.stderr[-2000:]}")
    (target / ".done").touch()
    return target


def check_release(version: str, home: Path, environ: dict[str, str]) -> str:
    """Return the release that the driver and a worker import.

    Raises
    ------
    SystemExit
        If the driver or the worker imports another release.
    """
    completed = subprocess.run(
        [sys.executable, "-c", RELEASE_PROGRAM], env=environ, capture_output=True, text=True, check=False, cwd=ROOT
    )
    lines = completed.stdout.splitlines()
    release = lines[0].split(" ", 1)[0] if lines else ""
    is_expected = f"{release}.".startswith(version.removesuffix("*").rstrip(".") + ".")
    if lines != [f"{release} {home}"] * 2 or not is_expected:
        raise SystemExit(f"DuckDB {version} in {home} is not imported, but: {lines}\n{completed.stderr[-2000:]}")
    return release


def run(version: str, folder: Path, arguments: list[str]) -> bool:
    """Run tests with a release; return whether all pass."""
    home = install(version, folder).resolve()
    environ = dict(os.environ, PYTHONPATH=os.pathsep.join([str(home), str(ROOT / "src"), str(ROOT)]))
    environ["PYSPARK_PYTHON"] = sys.executable
    release = check_release(version, home, environ)
    print(f"DuckDB {release}, in the driver and in a worker:", flush=True)
    pytest = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(pytest, env=environ, check=False, cwd=ROOT).returncode == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, epilog="Arguments after -- are passed to pytest.")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "duckdb", help="folder for the releases")
    parser.add_argument("versions", nargs="+", help="such as 1.5.0 or '2.0.*'")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:split])
    pytest_arguments = sys.argv[split + 1 :] or ["-m", "not slow", *TESTS]
    options.folder.mkdir(parents=True, exist_ok=True)
    results = [run(version, options.folder, pytest_arguments) for version in options.versions]
    sys.exit(not all(results))
