"""The rows of docs/reference/designs.md, their mutations in tools/designs, and the results of these mutations.

A mutation replaces a text in a file that a row cites, so that the required behavior is missing or wrong. A row is
proven if the tests that it cites fail with its mutation. `mutate_designs.py` runs the mutations and writes
``tools/designs/results.json``; `make_docs.py` copies the counts from there to the page.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "designs.md"
MUTATIONS = Path(__file__).parent / "designs"
RESULTS = MUTATIONS / "results.json"
FAILS = "fails"
"""The outcome of a mutation that all of its tests detect."""
HEAD = ["requirement", "works", "where", "test"]
QUOTED = re.compile(r"`([^`]+)`")
_SUMMARY = re.compile(r"(<!-- mutations: (?P<design>\S+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


class Row(NamedTuple):
    """A row of a table."""

    requirement: str
    works: str
    where: str
    test: str

    @property
    def is_complete(self) -> bool:
        """Whether the row says yes, with or without a remark."""
        return self.works.partition(":")[0] == "yes"


@dataclass(frozen=True)
class Mutation:
    """The mutation of a row.

    Parameters
    ----------
    requirement
        The first cell of the row.
    file
        A file that the row cites, as it is written there.
    before
        A text that occurs once in the file.
    after
        Its replacement.
    tests
        The tests that must fail: tests that the row cites, or cases of them; if empty, all cited tests.
    error
        The class of the error that the tests raise instead of failing an assertion; empty for an assertion.
    reason
        Why the row has no mutation; then the fields before are empty.
    """

    requirement: str
    file: str = ""
    before: str = ""
    after: str = ""
    tests: tuple[str, ...] = ()
    error: str = ""
    reason: str = ""

    @property
    def path(self) -> Path:
        """The path of the file, relative to the root of the project."""
        return source_path(self.file).relative_to(ROOT)

    @property
    def digest(self) -> str:
        """A hash of the mutation."""
        return _digest(self.file, self.before, self.after, self.error, *self.tests)

    def digest_with_sources(self) -> str:
        """Return a hash of the mutation, of the file that it changes, and of the files of its tests."""
        files = sorted({self.path, *(Path(test.partition("::")[0]) for test in self.tests)})
        return _digest(self.digest, *((ROOT / file).read_text() for file in files))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def source_path(location: str) -> Path:
    """Return the path of a cited file, which is below ``src/penstock`` unless it begins with ``tests`` or ``bench``."""
    return ROOT / location if location.startswith(("tests/", "bench/")) else ROOT / "src" / "penstock" / location


def cells(line: str) -> list[str]:
    """Return the cells of a row of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text: str) -> dict[str, list[Row]]:
    """Return the rows below each second-level heading."""
    rows: dict[str, list[Row]] = {}
    for section in text.split("\n## ")[1:]:
        lines = [cells(line) for line in section.splitlines() if line.startswith("|")]
        if lines and lines[0] == HEAD:
            rows[section.partition("\n")[0]] = [Row(*line) for line in lines[2:]]
    return rows


def rows_by_design() -> dict[str, list[Row]]:
    """Return the rows of the page by the short name of their design, such as ``FLIP-379``."""
    return {name.partition(":")[0]: rows for name, rows in tables(PAGE.read_text()).items()}


def mutations_of(design: str, rows: list[Row]) -> list[Mutation]:
    """Return the entries of ``tools/designs/DESIGN.toml``; those without tests get the tests that their rows cite."""
    file = MUTATIONS / f"{design.lower()}.toml"
    cited = {row.requirement: tuple(QUOTED.findall(row.test)) for row in rows}
    entries = tomllib.loads(file.read_text())["row"]
    return [
        Mutation(**entry | {"tests": tuple(entry.get("tests", ())) or cited.get(entry["requirement"], ())})
        for entry in entries
    ]


def read_results(file: Path = RESULTS) -> dict[str, dict[str, dict[str, str]]]:
    """Return the results by design and requirement."""
    return json.loads(file.read_text()) if file.exists() else {}


def cases_of(test: str, collected: Iterable[str]) -> tuple[str, ...]:
    """Return the cases of a cited test; a cited case of a test with several parameters may be the value of a parameter.

    >>> cases_of("t.py::test_x[a]", ["t.py::test_x[1-a]", "t.py::test_x[2-a]", "t.py::test_x[1-b]"])
    ('t.py::test_x[1-a]',)
    """
    function, _, case = test.partition("[")
    cases = [name for name in collected if name.partition("[")[0] == function]
    if not case or test in cases:
        return tuple(cases) if not case else (test,)
    value = case.removesuffix("]")
    return tuple([name for name in cases if f"-{value}-" in f"-{name.partition('[')[2].removesuffix(']')}-"][:1])


def summary(design: str) -> str:
    """Return the text below the table of a design: how many rows are proven, since when, and which are not."""
    rows = rows_by_design()[design]
    complete = [row.requirement for row in rows if row.is_complete]
    mutations = {mutation.requirement: mutation for mutation in mutations_of(design, rows)}
    results = read_results().get(design, {})
    proven = {
        requirement: result
        for requirement, result in results.items()
        if requirement in complete and requirement in mutations
        if result["outcome"] == FAILS and result["mutation"] == mutations[requirement].digest
    }
    text = f"Mutations of the cited code made the cited tests of {len(proven)} of {len(complete)} rows with *yes* fail"
    if proven:
        dates, commits = (sorted({result[key] for result in proven.values()}) for key in ("date", "commit"))
        text += f" (verified on {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, commit {', '.join(commits)})"
    earlier = sum(result["sources"] != mutations[name].digest_with_sources() for name, result in proven.items())
    if earlier:
        text += f", of them {earlier} before later changes of the files"
    reasons = {requirement: mutation.reason for requirement, mutation in mutations.items()}
    others = [
        f"* {requirement} ({reasons.get(requirement) or 'not verified'})"
        for requirement in complete
        if requirement not in proven
    ]
    return text + ("; the others are\n\n" + "\n".join(others) if others else ".") + "\n"


def fill_in(text: str) -> str:
    """Return the page with the current results."""
    return _SUMMARY.sub(lambda match: match[1] + summary(match["design"]), text)
