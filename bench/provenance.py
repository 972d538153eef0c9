"""What a table of results was measured with: the date, the commit and the versions. Each benchmark writes it first."""

import datetime as dt
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = {"PySpark": "pyspark", "Penstock": "penstock", "DuckDB": "duckdb"}


def commit(root: Path) -> str:
    """Return the short commit of a work tree, with a + if files differ from it (results aside)."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    changes = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)bench/results")
    return git("rev-parse", "--short", "HEAD") + "+" * bool(changes)


STATE = f"{dt.date.today()}, commit {commit(ROOT)}"
"""Read when a benchmark starts: the tree may change while it runs."""


def versions() -> str:
    """Return the versions of the packages that are installed, and of Python."""
    named = []
    for name, package in PACKAGES.items():
        try:
            named.append(f"{name} {version(package)}")
        except PackageNotFoundError:
            named.append(f"no {name}")
    return ", ".join([*named, f"Python {platform.python_version()}"])
