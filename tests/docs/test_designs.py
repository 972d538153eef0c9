"""Rows of the design tables name existing code and tests, or give a reason for having no test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tools.design_rows import QUOTED, Row, rows_by_design, source_path

DESIGNS = ["FLIP-379", "FLINK-31655", "FLIP-469", "FLIP-146", "FLINK-5052"]
ANSWERS = re.compile(r"yes$|(yes|in part|no): \S.*", re.DOTALL)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def definition(body: list[ast.stmt], name: str) -> ast.stmt | None:
    """Return the definition of a name in a module or class, or None."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node
    return None


def has_symbol(path: Path, dotted: str) -> bool:
    """Return whether a file defines a name such as `Class.member`, or, if it is not Python, contains the text."""
    if path.suffix != ".py":
        return dotted in path.read_text()
    body = parsed(path).body
    for name in dotted.split("."):
        node = definition(body, name)
        if node is None:
            return False
        body = getattr(node, "body", [])
    return True


def is_slow(test_id: str) -> bool:
    """Return whether only `make test-full` runs a test."""
    path, _, rest = test_id.partition("::")
    module = parsed(ROOT / path)
    test, marks = definition(module.body, rest.partition("[")[0]), definition(module.body, "pytestmark")
    assert isinstance(test, ast.FunctionDef)
    markers = [*test.decorator_list, *([marks.value] if isinstance(marks, ast.Assign) else [])]
    return any(re.search(r"\bmark\.slow\b", ast.unparse(marker)) for marker in markers)


def case_ids(test: ast.FunctionDef, module: ast.Module) -> set[str]:
    """Return the ids of the cases of a test that are literals or the keys of a mapping."""
    ids: set[str] = set()
    for call in test.decorator_list:
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("parametrize"):
            for values in (call.args[1], *(keyword.value for keyword in call.keywords if keyword.arg == "ids")):
                ids.update(literals(values, module))
    return ids


def literals(values: ast.expr, module: ast.Module) -> Iterator[str]:
    """Yield the literals in a sequence, or the keys of a mapping."""
    match values:
        case ast.Name(name) | ast.Call(args=[ast.Starred(ast.Name(name))]):
            assignment = definition(module.body, name)
            if isinstance(assignment, ast.Assign | ast.AnnAssign) and assignment.value is not None:
                yield from literals(assignment.value, module)
        case ast.Dict(keys=keys):
            yield from (key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        case ast.List(elements) | ast.Tuple(elements):
            yield from (str(element.value) for element in elements if isinstance(element, ast.Constant))


def location_problem(location: str) -> str | None:
    path, _, symbol = location.partition("::")
    file = source_path(path)
    if not file.is_file():
        return f"there is no file {path}"
    return None if not symbol or has_symbol(file, symbol) else f"{path} has no {symbol}"


def citation_problem(test_id: str) -> str | None:
    path, _, rest = test_id.partition("::")
    name, _, case = rest.partition("[")
    file = ROOT / path
    if not (path.startswith("tests/") and file.is_file()):
        return f"there is no file {path}"
    test = definition(parsed(file).body, name)
    if not (name.startswith("test_") and isinstance(test, ast.FunctionDef)):
        return f"{path} has no test {name}"
    ids = case_ids(test, parsed(file))
    return None if not case or case.removesuffix("]") in ids else f"{name} has no case {case}, but {sorted(ids)}"


def problems(row: Row) -> list[str]:
    """Return the errors in a row."""
    errors = [] if ANSWERS.fullmatch(row.works) else [f"it does not say whether it works: {row.works}"]
    locations, tests = QUOTED.findall(row.where), QUOTED.findall(row.test)
    if not locations and not row.works.startswith("no: "):
        errors.append("it does not say where")
    errors += [problem for location in locations if (problem := location_problem(location))]
    errors += [problem for test_id in tests if (problem := citation_problem(test_id))]
    if not tests and not re.fullmatch(r"none: (\S+ ){2,}\S+", row.test):
        errors.append("it has no test and no reason for that")
    return errors


TABLES = rows_by_design()
ROWS = [row for rows in TABLES.values() for row in rows]


def test_each_design_has_a_table() -> None:
    assert list(TABLES) == DESIGNS
    assert all(len(rows) >= 10 for rows in TABLES.values())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.requirement)
def test_code_and_tests_of_a_row_exist(row: Row) -> None:
    assert problems(row) == []


def test_each_row_has_a_test_outside_of_the_slow_set() -> None:
    cited = {row.requirement: QUOTED.findall(row.test) for row in ROWS}
    assert [requirement for requirement, tests in cited.items() if tests and all(map(is_slow, tests))] == []


GOOD = Row(
    "x",
    "in part: only so far",
    "`connectors/core/base.py::Source.read`",
    "`tests/docs/test_designs.py::test_errors_of_a_row[no file]`",
)
WRONG = {
    "no answer": (GOOD._replace(works="perhaps"), "whether it works"),
    "part without text": (GOOD._replace(works="in part:"), "whether it works"),
    "no location": (GOOD._replace(where="somewhere"), "does not say where"),
    "no file": (GOOD._replace(where="`connectors/core/bas.py`"), "no file connectors/core/bas.py"),
    "no symbol": (GOOD._replace(where="`connectors/core/base.py::Sourc`"), "has no Sourc"),
    "no member": (GOOD._replace(where="`connectors/core/base.py::Source.write`"), "has no Source.write"),
    "no text": (GOOD._replace(where="`web/templates/job.html::no such button`"), "has no no such button"),
    "no test file": (GOOD._replace(test="`tests/test_x.py::test_x`"), "no file tests/test_x.py"),
    "no test": (GOOD._replace(test="`tests/docs/test_designs.py::test_y`"), "has no test test_y"),
    "no function of a test": (GOOD._replace(test="`tests/docs/test_designs.py::problems`"), "has no test problems"),
    "no case": (GOOD._replace(test="`tests/docs/test_designs.py::test_errors_of_a_row[never]`"), "has no case never"),
    "no reason": (GOOD._replace(test="none"), "no reason"),
    "too short a reason": (GOOD._replace(test="none: sorry"), "no reason"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_of_a_row(name: str) -> None:
    row, message = WRONG[name]
    (problem,) = problems(row)
    assert message in problem


def test_a_correct_row_has_no_errors() -> None:
    assert problems(GOOD) == []
    assert (
        problems(GOOD._replace(works="no: it has no counterpart", where="nowhere", test="none: nothing is built")) == []
    )
