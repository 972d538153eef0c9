"""The command `penstock-python`: Python, with the Spark sessions of its programs enabled.

For whoever starts programs by settings alone: ``spark.pyspark.driver.python=penstock-python``.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run ``penstock-python FILE ARGUMENTS``; anything else is for Python itself."""
    from penstock.cli.scripts import run_file
    from penstock.extension.program import all_sessions_enabled

    if not sys.argv[1:2] or sys.argv[1].startswith("-"):
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - the same interpreter
    with all_sessions_enabled():
        run_file(sys.argv[1], sys.argv[2:])
