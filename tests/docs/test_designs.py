"""The table of the designs: what it names is there, and what has no test says why."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "designs.md"
HEAD = ["requirement", "works", "where", "test"]
DESIGNS = ["FLIP-379", "FLINK-31655", "FLIP-469", "FLIP-146", "FLINK-5052"]
ANSWERS = re.compile(r"yes$|(yes|in part|no): \S.*", re.DOTALL)
QUOTED = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """A line of a table."""

    requirement: str
    works: str
    where: str
    test: str


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text: str) -> dict[str, list[Row]]:
    """Return the rows below each heading of the second order."""
    found: dict[str, list[Row]] = {}
    for section in text.split("\n## ")[1:]:
        lines = [cells(line) for line in section.splitlines() if line.startswith("|")]
        if lines and lines[0] == HEAD:
            found[section.partition("\n")[0]] = [Row(*line) for line in lines[2:]]
    return found


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def definition(body: list[ast.stmt], name: str) -> ast.stmt | None:
    """Return what a name stands for in a module or class."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node
    return None


def has_symbol(path: Path, dotted: str) -> bool:
    """Whether a file has a name; that of a member comes after its class. Other languages only contain the text."""
    if path.suffix != ".py":
        return dotted in path.read_text()
    body = parsed(path).body
    for name in dotted.split("."):
        found = definition(body, name)
        if found is None:
            return False
        body = getattr(found, "body", [])
    return True


def is_quick(named: str) -> bool:
    """Whether a test is in the quick set; `tests/sampling.py` sees to its cases."""
    path, _, rest = named.partition("::")
    module = parsed(ROOT / path)
    test, marks = definition(module.body, rest.partition("[")[0]), definition(module.body, "pytestmark")
    assert isinstance(test, ast.FunctionDef)
    written = [*test.decorator_list, *([marks.value] if isinstance(marks, ast.Assign) else [])]
    return not any(re.search(r"\bmark\.(thorough|slow|alone)\b", ast.unparse(one)) for one in written)


def case_ids(test: ast.FunctionDef, module: ast.Module) -> set[str]:
    """Return the names of the cases of each parametrize of a test, as far as they are written there."""
    found: set[str] = set()
    for call in test.decorator_list:
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("parametrize"):
            for values in (call.args[1], *(one.value for one in call.keywords if one.arg == "ids")):
                found.update(texts_of(values, module))
    return found


def texts_of(values: ast.expr, module: ast.Module) -> Iterator[str]:
    """Return the texts among some values, or the keys of a mapping."""
    match values:
        case ast.Name(name) | ast.Call(args=[ast.Starred(ast.Name(name))]):
            place = definition(module.body, name)
            if isinstance(place, ast.Assign | ast.AnnAssign) and place.value is not None:
                yield from texts_of(place.value, module)
        case ast.Dict(keys=keys):
            yield from (key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        case ast.List(elements) | ast.Tuple(elements):
            yield from (str(one.value) for one in elements if isinstance(one, ast.Constant))


def problem_of_place(named: str) -> str | None:
    path, _, symbol = named.partition("::")
    file = ROOT / path if path.startswith(("tests/", "bench/")) else ROOT / "src" / "penstock" / path
    if not file.is_file():
        return f"there is no file {path}"
    return None if not symbol or has_symbol(file, symbol) else f"{path} has no {symbol}"


def problem_of_test(named: str) -> str | None:
    path, _, rest = named.partition("::")
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
    """Return what is wrong with a row."""
    found = [] if ANSWERS.fullmatch(row.works) else [f"it does not say whether it works: {row.works}"]
    places, tests = QUOTED.findall(row.where), QUOTED.findall(row.test)
    if not places and not row.works.startswith("no: "):
        found.append("it does not say where")
    found += [problem for named in places if (problem := problem_of_place(named))]
    found += [problem for named in tests if (problem := problem_of_test(named))]
    if not tests and not re.fullmatch(r"none: (\S+ ){2,}\S+", row.test):
        found.append("it has no test, and does not say why")
    return found


TABLES = tables(PAGE.read_text())
ROWS = [row for rows in TABLES.values() for row in rows]


def test_each_design_has_its_table() -> None:
    assert [name.partition(":")[0] for name in TABLES] == DESIGNS
    assert all(len(rows) >= 10 for rows in TABLES.values())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.requirement)
def test_what_a_row_names_is_there(row: Row) -> None:
    assert problems(row) == []


def test_the_quick_tests_have_one_of_each_row() -> None:
    named = {row.requirement: QUOTED.findall(row.test) for row in ROWS}
    late = [requirement for requirement, tests in named.items() if tests and not any(map(is_quick, tests))]
    assert late == ["It was tested on a real cluster."]


GOOD = Row(
    "x",
    "in part: only so far",
    "`connectors/base.py::Source.read`",
    "`tests/docs/test_designs.py::test_a_wrong_row[no file]`",
)
WRONG = {
    "no answer": (GOOD._replace(works="perhaps"), "whether it works"),
    "part of what": (GOOD._replace(works="in part:"), "whether it works"),
    "no place": (GOOD._replace(where="somewhere"), "does not say where"),
    "no file": (GOOD._replace(where="`connectors/bas.py`"), "no file connectors/bas.py"),
    "no symbol": (GOOD._replace(where="`connectors/base.py::Sourc`"), "has no Sourc"),
    "no member": (GOOD._replace(where="`connectors/base.py::Source.write`"), "has no Source.write"),
    "no text": (GOOD._replace(where="`web/templates/job.html::no such button`"), "has no no such button"),
    "no test file": (GOOD._replace(test="`tests/test_x.py::test_x`"), "no file tests/test_x.py"),
    "no test": (GOOD._replace(test="`tests/docs/test_designs.py::test_y`"), "has no test test_y"),
    "no function of a test": (GOOD._replace(test="`tests/docs/test_designs.py::problems`"), "has no test problems"),
    "no case": (GOOD._replace(test="`tests/docs/test_designs.py::test_a_wrong_row[never]`"), "has no case never"),
    "no reason": (GOOD._replace(test="none"), "does not say why"),
    "hardly a reason": (GOOD._replace(test="none: sorry"), "does not say why"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_row(name: str) -> None:
    row, said = WRONG[name]
    (found,) = problems(row)
    assert said in found


def test_a_right_row() -> None:
    assert problems(GOOD) == []
    assert (
        problems(GOOD._replace(works="no: it has no counterpart", where="nowhere", test="none: nothing is built")) == []
    )
