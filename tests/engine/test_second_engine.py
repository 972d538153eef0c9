"""An engine of another package, registered by an entry point, replaces DuckDB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.arrow_engine import FAIL_VARIABLE, FAILURE
from tests.support.paths import ROOT, TESTS

CASES = {
    "a whole query": ("count", {}, "one task of PyArrow computes"),
    "a whole query that fails": ("count", {FAIL_VARIABLE: "1"}, FAILURE),
    "a filter": ("groups", {}, "is read by PyArrow"),
    "a filter that fails": ("groups", {FAIL_VARIABLE: "1"}, FAILURE),
    "a filter that it declines": ("lists", {}, "its condition is not supported"),
}
"""A query, environment variables, and part of the text of a decision of the job."""


@pytest.fixture
def site_packages(tmp_path: Path) -> Path:
    """A folder with an installed package that provides the engine."""
    info = tmp_path / "packages" / "arrow_engine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: arrow-engine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[penstock.engines]\narrow = tests.engine.arrow_engine:ENGINE\n")
    return info.parent


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=[] if name == "a filter" else pytest.mark.thorough) for name in CASES]
)
def test_a_registered_engine_computes_rows(site_packages: Path, tmp_path: Path, case: str) -> None:
    query, variables, expected = CASES[case]
    path = os.pathsep.join([str(site_packages), str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.run(
        [sys.executable, str(TESTS / "jobs" / "second_engine.py"), str(tmp_path / "table"), query],
        env=os.environ | {"PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    report = json.loads(process.stdout.splitlines()[-1])
    assert report["rows"] == report["expected"] != []
    assert any(expected in text for _, text in report["decisions"])
    assert "DuckDB" not in str(report["decisions"])
