"""What users see: text, JSON and a page, without Spark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.doctor.diagnosis import Diagnosis, Facts, ranked
from penstock.doctor.finding import Finding, Kind
from penstock.doctor.page import page

DATA = Path(__file__).parent / "data"
LOG = str(DATA / "skewed_pandas_groups.gz")


def doctor(*arguments: str) -> Any:
    done = CliRunner().invoke(main, ["doctor", *arguments])
    return done.exit_code, done.output


def test_text() -> None:
    code, output = doctor(LOG)
    text = " ".join(output.split())
    assert code == 0
    assert "skewed_pandas_groups ran for 37.4 s on 4 cores: tasks ran for 34.9 s" in text
    assert re.search(r"1\. skew: about 6\.1 s lost \(16% of the run\), collect at fault_programs\.py:\d+", text)
    assert "with Penstock: Penstock does not divide the groups of a Python function" in text


def test_no_problem() -> None:
    code, output = doctor("--min-seconds", "100", LOG)
    assert (code, "No problem that costs more than 1 min 40 s." in output) == (0, True)


def test_json() -> None:
    code, output = doctor("--output-format", "json", LOG)
    document = json.loads(output)["diagnosis"]
    assert code == 0
    assert document["application"]["cores"] == 4
    (finding,) = document["findings"]
    assert (finding["kind"], finding["figures"]["tasks"]) == ("skew", 12)
    assert 6 < finding["seconds"] < 6.2


def test_page(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert doctor("--html", str(target), LOG)[0] == 0
    html = target.read_text()
    assert "1. skew: about 6.1 s lost" in html
    assert not re.search(r"<script|<link|<img|src=|https?://|url\(", html)


def finding(line: str, seconds: float, subject: str = "stage 1", kind: Kind = Kind.SPILL) -> Finding:
    return Finding(kind, seconds, line, subject, "problem", "decision", "remedy", {})


HOSTILE = "<script>alert(1)</script>[bold]&\"'"


def test_the_page_escapes_texts_of_the_log() -> None:
    facts = Facts(HOSTILE, HOSTILE, HOSTILE, 10.0, 5.0, 1.0, 4, 1, 1, 1, 1, 1, (HOSTILE,))
    texts = Finding(Kind.SKEW, 5.0, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, {})
    html = page(Diagnosis(facts, (texts,), 1.0))
    assert "<script" not in html
    assert html.count("&lt;script&gt;alert(1)") >= 8


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([("save at a.py:1", 0.4), ("save at a.py:1", 0.8)], [("save at a.py:1", 1.2, 2)]),  # a loop
        ([("save at a.py:1", 0.4), ("save at a.py:2", 0.8)], []),
        ([("save at a.py:1", 1), ("save at a.py:2", 3)], [("save at a.py:2", 3, 1), ("save at a.py:1", 1, 1)]),
        ([("query 3 (save)", 0.8), ("query 4 (save)", 0.8)], []),
    ],
)
def test_findings_are_merged_by_line_and_ranked(findings: Any, expected: Any) -> None:
    merged = ranked([finding(line, seconds, f"stage {n}") for n, (line, seconds) in enumerate(findings)], 1.0)
    assert [(part.line, round(part.seconds, 3), part.repeats) for part in merged] == expected


@pytest.mark.parametrize(
    ("queries", "expected"),
    [
        ([(1,), (1,)], 10.0),
        ([(1,), (2,)], 15.0),  # the second begins before the first has ended
        ([(1,), ()], 90.0),  # the duration of one is unknown
        ([(1,), (9,)], 90.0),
    ],
)
def test_findings_cost_no_more_than_their_queries(queries: Any, expected: float) -> None:
    findings = [replace(finding("save at a.py:1", 45.0), queries=ids) for ids in queries]
    (merged,) = ranked(findings, 1.0, {1: (0.0, 10.0), 2: (5.0, 15.0)})
    assert merged.seconds == expected


def test_no_spark_is_imported() -> None:
    program = (
        "import sys; from click.testing import CliRunner; from penstock.cli.main import main;"
        f"assert CliRunner().invoke(main, ['doctor', {LOG!r}]).exit_code == 0;"
        "print([name for name in sys.modules if name.startswith(('pyspark', 'py4j', 'penstock.spark'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
