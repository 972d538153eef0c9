"""Event logs of programs with a seeded fault are diagnosed, and healthy programs raise no false alarm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.doctor.diagnosis import diagnose
from tests.support.paths import ROOT
from tools.fault_programs import FAULTS, HEALTHY

DATA = Path(__file__).parent / "data"
KINDS = {program.name: program.kind for program in [*FAULTS, *HEALTHY]}
LINES = {
    "skewed_pandas_groups": "collect at fault_programs.py",
    "overestimated_side": "collect at fault_programs.py",
    "small_parquet_files": "collect at fault_programs.py",
    "failing_tasks": "collect at fault_programs.py",
}


@pytest.mark.parametrize("path", sorted(DATA.glob("*.gz")), ids=lambda path: path.stem)
def test_reduced_logs(path: Path) -> None:
    """Logs that ``tools.shrink_log`` has reduced."""
    diagnosis = diagnose(path)
    kind = KINDS[path.stem]
    assert [str(finding.kind) for finding in diagnosis.findings[:1]] == ([kind] if kind else [])
    for finding in diagnosis.findings[:1]:
        assert finding.line.startswith(LINES[path.stem])
        assert diagnosis.threshold <= finding.seconds <= diagnosis.facts.seconds


def test_findings_below_the_threshold_are_not_reported() -> None:
    path = DATA / "skewed_pandas_groups.gz"
    (finding,) = diagnose(path).findings
    assert diagnose(path, min_seconds=finding.seconds + 0.1).findings == ()
    assert len(diagnose(path, min_seconds=0).findings) >= 1


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of all programs, each of an application on plain Spark."""
    folder = tmp_path_factory.mktemp("logs")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYSPARK_PYTHON": sys.executable}
    subprocess.run([sys.executable, "-m", "tools.make_fault_logs", str(folder)], cwd=ROOT, env=environment, check=True)
    return folder


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("program", FAULTS, ids=lambda program: program.name)
def test_seeded_faults_are_the_top_finding(logs: Path, program: object) -> None:
    name = program.name
    findings = diagnose(logs / name).findings
    assert [str(finding.kind) for finding in findings[:1]] == [KINDS[name]]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("program", HEALTHY, ids=lambda program: program.name)
def test_healthy_programs_have_no_finding(logs: Path, program: object) -> None:
    assert diagnose(logs / program.name).findings == ()


def test_there_are_enough_programs() -> None:
    assert (len(FAULTS), len(HEALTHY), len(KINDS)) == (20, 10, 30)
