"""Rules of the architecture: imports go downwards only, and a single package accesses Spark's JVM."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.wall import Surface, leaks

SOURCE = Path(__file__).parent.parent / "src" / "penstock"
MODULES = sorted(SOURCE.rglob("*.py"))
# From the bottom to the top: a package may import itself and packages of lower levels.
LEVELS = [
    {"errors", "units", "hashing", "masking", "threads", "addresses", "handshakes"},
    {"tables", "estimates", "recorded_decisions", "log_masking"},
    {"location", "decisions", "summary", "config"},
    {"arguments"},
    {"native"},
    {"graph"},
    {"events"},
    {"optimizer"},
    {"sizing"},
    {"spark", "spark_errors"},
    {"commit"},
    {"connectors"},
    {"testing"},
    {"plan_hints", "state"},
    {"functions", "rebalance", "results", "streams"},
    {"planner"},
    {"execution"},
    {"scheduler"},
    {"history", "metrics"},
    {"web"},
    {"progress", "report", "explain", "observer", "shadow"},
    {"analysis"},
    {"environment", "extension"},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}
PURE = (
    "graph",
    "config",
    "errors",
    "decisions",
    "estimates",
    "recorded_decisions",
    "summary",
    "events",
    "units",
    "threads",
    "location",
    "sizing",
    "optimizer",
    "testing",
    "connectors/splits",
    "connectors/scan_parallelism",
    "connectors/predicates",
    "connectors/jdbc/splits",
    "connectors/jdbc/keyspace",
    "connectors/pace",
    "connectors/micro_batches",
    "connectors/kafka/offsets",
    "connectors/http/pace",
    "connectors/http/driver_link",
    "connectors/http/driver_side",
    "connectors/http/first_rows",
    "connectors/kafka/stream_offsets",
    "planner/distribution",
    "commit/owner",
    "rebalance/record_writer",
    "rebalance/credit",
    "rebalance/protocol",
    "hashing",
    "masking",
    "log_masking",
    "addresses",
    "handshakes",
    "native",
    "state/key_groups",
    "state/assignment",
    "state/layout",
    "state/recommendation",
    "state/rewrite_methods",
    "metrics",
    "streams/progress",
    "streams/batches",
    "streams/advice",
    "history/record",
    "history/lines",
    "history/event_log",
    "history/logs",
    "history/reading",
    "history/summaries",
    "history/drivers",
    "web/views",
    "web/charts/layout",
    "web/charts/graph",
    "web/charts/bars",
    "web/steps",
    "web/timing",
    "web/findings",
    "web/reasons",
    "web/lanes",
    "web/subpartition_bars",
    "web/edges",
    "web/decision_differences",
    "web/stages",
    "web/sources",
    "web/comparison",
    "web/dashboard",
    "web/listing",
    "web/streams",
    "web/formatting",
    "web/pages",
    "web/store",
    "web/api",
    "web/api_schema",
)
JVM = re.compile(r"\._(jvm|jdf|jsc|jsparkSession|gateway)\b|py4j")


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path, *, for_types_too: bool = True) -> set[str]:
    modules: set[str] = set()
    tree = ast.parse(path.read_text())
    skipped = set()
    if not for_types_too:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                skipped |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
    return modules


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_downwards(path: Any) -> None:
    if path.name == "__init__.py" and path.parent == SOURCE:
        return
    own = room(path)
    for module in imports(path):
        if module.startswith("penstock."):
            other = module.split(".")[1]
            assert other == own or LEVEL[other] < LEVEL[own], f"{own} must not import {module}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_spark_package_accesses_the_jvm(path: Any) -> None:
    if room(path) != "spark":
        assert not JVM.search(path.read_text())


OUTSIDE = [path for path in MODULES if room(path) != "spark"]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_jvm_access_through_wrappers(path: Any) -> None:
    assert not leaks(path.read_text())


@pytest.mark.parametrize(
    ("text", "is_leak"),
    [
        ("plan._handle.output()", True),
        ("self._plan._handle", True),
        ("leaf._bridge.session", True),
        ("self._bridge = bridge", False),
        ("bridge.find('java.lang.Runtime')", True),
        ("self._context.bridge.seq(keys)", True),
        ("plan_job(env.bridge.session, bridge.spark)", False),
    ],
)
def test_jvm_access_in_source_is_detected(text: str, is_leak: bool) -> None:
    assert bool(leaks(text)) is is_leak


def test_the_interface_of_the_spark_package_is_typed() -> None:
    """An object of the JVM would have the type ``Any``, and mypy could not check its use."""
    surface = Surface(OUTSIDE)
    assert {
        ("logical_plan", "LogicalPlan"),
        ("expressions", "Expression"),
        ("handles", "InternalRows"),
    } <= surface.names
    assert surface.untyped() == []


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_import_no_spark(name: str) -> None:
    paths = [SOURCE / f"{name}.py"] if (SOURCE / f"{name}.py").exists() else sorted((SOURCE / name).rglob("*.py"))
    assert paths
    for path in paths:
        for module in imports(path, for_types_too=False):
            assert not module.startswith(("pyspark", "py4j", "penstock.spark"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_have_at_most_600_lines(path: Any) -> None:
    assert len(path.read_text().splitlines()) <= 600


def test_spark_settings_are_compared_case_insensitively() -> None:
    """Spark accepts ``TRUE`` too, see `penstock.spark.settings.is_true`."""
    compared = re.compile(r"""(?:conf|settings)\b[^\n]*(?:[!=]= "(?:true|false)"|equals\("(?:true|false)"\))""")
    files = [path for pattern in ("*.py", "*.java") for path in SOURCE.rglob(pattern)]
    assert [f"{path.name}: {match[0]}" for path in files for match in compared.finditer(path.read_text())] == []


def test_the_docs_list_all_packages_in_order() -> None:
    """The table must show in which direction packages import each other."""
    text = (SOURCE.parent.parent / "docs" / "architecture.md").read_text()
    table = text.split("| package or module |")[1].split("\n\n")[0].splitlines()[2:]
    rows = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table]
    assert sorted(name for row in rows for name in row) == sorted(LEVEL)
    levels = [[LEVEL[name] for name in row] for row in rows]
    for row, following in pairwise(levels):
        assert max(row) <= min(following)


def test_each_question_of_the_docs_has_a_file() -> None:
    text = (SOURCE.parent.parent / "docs" / "architecture.md").read_text()
    table = text.split("| question |")[1].split("\n\n")[0].splitlines()[2:]
    for row in table:
        (file,) = re.findall(r"`([\w/]+\.py)`", row)
        assert (SOURCE / file).is_file()
