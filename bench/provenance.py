"""Date, commit and versions of a measurement, which benchmarks write above the table of results."""

import datetime as dt
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = {"PySpark": "pyspark", "Penstock": "penstock", "DuckDB": "duckdb"}


def commit(root: Path) -> str:
    """Return the short commit of a work tree, with a "+" if files outside bench/results differ from it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    changes = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)bench/results")
    return git("rev-parse", "--short", "HEAD") + "+" * bool(changes)


DATE_AND_COMMIT = f"{dt.date.today()}, commit {commit(ROOT)}"
"""Determined at the start of a benchmark, as the work tree may change during the run."""


def versions() -> str:
    """Return the versions of the installed packages and of Python."""
    labels = []
    for name, package in PACKAGES.items():
        try:
            labels.append(f"{name} {version(package)}")
        except PackageNotFoundError:
            labels.append(f"no {name}")
    return ", ".join([*labels, f"Python {platform.python_version()}"])
