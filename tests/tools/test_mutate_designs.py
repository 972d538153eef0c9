"""Each row of the design tables has a mutation that its tests must detect, or a reason for having none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tools import design_rows
from tools.design_rows import QUOTED, Mutation, Row, cases_of, mutations_of, rows_by_design, summary
from tools.mutate_designs import Case, Pending, Run, check_mutation, read_cases, verdict

DESIGNS = rows_by_design()
MUTATIONS = {design: mutations_of(design, rows) for design, rows in DESIGNS.items()}


@pytest.mark.parametrize("design", DESIGNS)
def test_each_complete_row_has_a_mutation_or_a_reason(design: str) -> None:
    requirements = [mutation.requirement for mutation in MUTATIONS[design]]
    assert len(requirements) == len(set(requirements))
    assert set(requirements) <= {row.requirement for row in DESIGNS[design]}
    assert set(requirements) >= {row.requirement for row in DESIGNS[design] if row.is_complete}


def problems(row: Row, mutation: Mutation) -> list[str]:
    """Return the errors in a mutation."""
    if mutation.reason:
        is_empty = not (mutation.file or mutation.before or mutation.after)
        return [] if is_empty and len(mutation.reason.split()) > 4 else ["it has a reason and a mutation, or no reason"]
    cited_files = {location.partition("::")[0] for location in QUOTED.findall(row.where)}
    cited_tests = QUOTED.findall(row.test)
    if mutation.file not in cited_files:
        return [f"{mutation.file} is not cited"]
    errors = []
    if (count := (ROOT / mutation.path).read_text().count(mutation.before)) != 1:
        errors.append(f"its text occurs {count} times in {mutation.file}")
    if mutation.before == mutation.after:
        errors.append("it changes nothing")
    if not mutation.tests or not all(
        test in cited_tests or test.partition("[")[0] in cited_tests for test in mutation.tests
    ):
        errors.append(f"its tests {mutation.tests} are not cited")
    return errors


@pytest.mark.parametrize("design", DESIGNS)
def test_mutations_change_cited_code_and_name_cited_tests(design: str) -> None:
    rows = {row.requirement: row for row in DESIGNS[design]}
    errors = {each.requirement: problems(rows[each.requirement], each) for each in MUTATIONS[design]}
    assert {requirement: messages for requirement, messages in errors.items() if messages} == {}


ROW = Row("r", "yes", "`config/option.py`", "`tests/config/test_option.py::test_a`")
GOOD = Mutation(
    "r", "config/option.py", "import annotations", "import division", ("tests/config/test_option.py::test_a",)
)
WRONG = {
    "not cited": {"file": "config/options.py"},
    "occurs 0 times": {"before": "no such text"},
    "changes nothing": {"after": GOOD.before},
    "are not cited": {"tests": ("tests/config/test_option.py::test_b",)},
    "a reason and a mutation": {"reason": "it has no counterpart in Spark"},
}


@pytest.mark.parametrize("message", WRONG)
def test_errors_of_a_mutation(message: str) -> None:
    assert problems(ROW, GOOD) == []
    values = {name: getattr(GOOD, name) for name in GOOD.__dataclass_fields__}
    (problem,) = problems(ROW, Mutation(**values | WRONG[message]))
    assert message in problem


COLLECTED = ["t.py::test_x[1-a b]", "t.py::test_x[2-a b]", "t.py::test_x[a]", "t.py::test_xy"]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("t.py::test_x", COLLECTED[:3]),
        ("t.py::test_x[a b]", COLLECTED[:1]),
        ("t.py::test_x[a]", COLLECTED[2:3]),
        ("t.py::test_x[2-a b]", COLLECTED[1:2]),
        ("t.py::test_x[c]", []),
        ("t.py::test_xy", COLLECTED[3:]),
    ],
)
def test_cases_of_a_cited_test(test: str, expected: list[str]) -> None:
    assert list(cases_of(test, COLLECTED)) == expected


def case_of(outcome: str) -> Case:
    if outcome == "crash":
        return Case("failure", "assert 1 == 0", "NameError")
    return Case("raised", "KeyError: 'x'") if outcome == "KeyError" else Case(outcome)


@pytest.mark.parametrize(
    ("first", "second", "error", "expected"),
    [
        ("failure", "failure", "", "fails"),
        ("failure", "passed", "", "passes"),
        ("failure", "KeyError", "", "no failure"),
        ("KeyError", "KeyError", "KeyError", "fails"),
        ("failure", "error", "KeyError", "no failure"),
        ("failure", "skipped", "", "no failure"),
        ("failure", None, "", "no failure"),
        ("failure", "crash", "", "no failure"),
        ("failure", "crash", "NameError", "fails"),
    ],
)
def test_every_test_must_fail_an_assertion(first: str, second: str | None, error: str, expected: str) -> None:
    mutation = Mutation("r", "f", "before", "after", ("a", "b"), error)
    outcomes = {"a[2]": case_of(first)} | ({} if second is None else {"b": case_of(second)})
    outcome, _ = verdict(Pending("d", mutation, (("a[1]", "a[2]"), ("b",))), outcomes | {"a[1]": Case("passed")})
    assert outcome == expected


class FlakyCopy:
    """A copy in which the test of a mutation fails with it, and `afterwards` has its outcome without it."""

    def __init__(self, afterwards: str) -> None:
        self._afterwards = afterwards

    def run_mutated(self, *_: Any) -> dict[str, Case]:
        return {"a": Case("failure")}

    def run(self, *_: Any) -> dict[str, Case]:
        return {"a": Case(self._afterwards)}


@pytest.mark.parametrize(("afterwards", "expected"), [("passed", "fails"), ("failure", "no test")])
def test_the_tests_must_pass_again_without_the_mutation(afterwards: str, expected: str) -> None:
    pending = Pending("d", Mutation("r", "f", "before", "after", ("a",)), (("a",),))
    copy: Any = FlakyCopy(afterwards)
    assert check_mutation(copy, pending, ["a"], 1.0)[0] == expected


@pytest.mark.parametrize(
    ("mutation", "sources", "expected"),
    [
        (GOOD.digest, GOOD.digest_with_sources(), "1 of 1 rows with *yes* fail (verified on 2026-01-02, commit 0123)."),
        (GOOD.digest, "before", "(verified on 2026-01-02, commit 0123), of them 1 before later changes of the files."),
        ("another", "before", "0 of 1 rows with *yes* fail; the others are"),
    ],
    ids=["current", "other sources", "another mutation"],
)
def test_the_page_counts_current_mutations(
    mutation: str, sources: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {"outcome": "fails", "mutation": mutation, "sources": sources, "date": "2026-01-02", "commit": "0123"}
    monkeypatch.setattr(design_rows, "rows_by_design", lambda: {"d": [ROW]})
    monkeypatch.setattr(design_rows, "mutations_of", lambda *_: [GOOD])
    monkeypatch.setattr(design_rows, "read_results", lambda: {"d": {"r": result}})
    assert expected in summary("d")


PROGRAM = """\
def check(number): assert number == 1
"""
REPORTED = """\
import subprocess, sys
import program
import pytest

def test_passes(): pass
def test_asserts(): assert 1 == 2
def test_asserts_with_a_message(): assert 1 == 2, "not the same"
def test_raises_no_error():
    with pytest.raises(ValueError): pass
def test_raises(): {}["x"]
def test_calls_an_assertion(): program.check(2)
def test_quotes_a_crash():
    done = subprocess.run([sys.executable, "-c", "x"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
def test_quotes_a_crash_in_a_list():
    done = subprocess.run([sys.executable, "-c", "x"], capture_output=True, text=True)
    assert [done.stderr] == []
def test_fails(): pytest.fail("no")
def test_skips(): pytest.skip("no")
@pytest.fixture
def broken(): assert False
def test_error(broken): pass
"""


def test_only_assertions_count_as_failures(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_reported.py").write_text(REPORTED)
    report = tmp_path / "report.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
        f"--junitxml={report}",
    ]
    environ = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(tmp_path)}
    subprocess.run([*command, "tests/test_reported.py"], cwd=tmp_path, env=environ, check=False, capture_output=True)
    outcomes = {
        name.partition("::test_")[2]: f"{case.outcome} {case.crash}".strip()
        for name, case in read_cases(report).items()
    }
    assert outcomes == {
        "passes": "passed",
        "asserts": "failure",
        "asserts_with_a_message": "failure",
        "raises_no_error": "failure",
        "raises": "raised",
        "calls_an_assertion": "raised",
        "quotes_a_crash": "failure NameError",
        "quotes_a_crash_in_a_list": "failure NameError",
        "fails": "raised",
        "skips": "skipped",
        "error": "error",
    }


def test_a_result_is_current_until_the_mutation_changes(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    Run(file, "0123").record(Pending("d", GOOD, ((),)), "fails", "assert 1 == 2")
    assert json.loads(file.read_text())["d"]["r"]["commit"] == "0123"
    run = Run(file, "4567")
    assert run.is_current("d", GOOD)
    assert not run.is_current("d", Mutation("r", GOOD.file, GOOD.before, "import generators", GOOD.tests))
    run.record(Pending("d", GOOD, ((),)), "passes", "")
    assert not Run(file, "4567").is_current("d", GOOD)


@pytest.mark.slow
@pytest.mark.timeout(3 * 60 * 60)  # more than a hundred runs of pytest
def test_the_tests_of_all_rows_fail_with_their_mutations(tmp_path: Path) -> None:
    command: list[Any] = [
        sys.executable,
        "-m",
        "tools.mutate_designs",
        "--jobs",
        "2",
        "--results",
        tmp_path / "results",
    ]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, re.sub(r"(?m)^fails .*\n.*\n", "", completed.stdout) + completed.stderr
