"""Rules of the architecture: imports go downwards only, and a single package accesses Spark's JVM."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.jvm_boundary import SparkInterface, jvm_accesses
from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "penstock"
MODULES = sorted(SOURCE.rglob("*.py"))
# From the bottom to the top: a package may import itself and packages of lower levels.
LEVELS = [
    {"errors"},
    {"base"},
    {"config"},
    {"decisions"},
    {"graph"},
    {"events"},
    {"sizing"},
    {"optimizer"},
    {"spark"},
    {"engine"},
    {"duckdb"},
    {"commit"},
    {"connectors"},
    {"testing"},
    {"hints", "state"},
    {"rebalance", "streams"},
    {"planner"},
    {"execution"},
    {"scheduler"},
    {"history", "metrics"},
    {"web"},
    {"doctor"},
    {"report", "shadow"},
    {"entry"},
    {"extension"},
    {"integrations"},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}
CALLS_PYSPARK = SOURCE / "duckdb/worker/functions.py"
"""The only module of a pure package that may import PySpark: it calls users' functions as PySpark's worker does."""
PURE = (
    "graph",
    "base/addresses",
    "base/channel",
    "base/hashing",
    "base/location",
    "base/masking",
    "base/tables",
    "base/threads",
    "base/units",
    "config",
    "errors",
    "decisions",
    "engine",
    "duckdb/worker",
    "spark/run/stage_rewriter",
    "events",
    "sizing",
    "optimizer",
    "testing",
    "connectors/core/splits",
    "connectors/core/scan_parallelism",
    "connectors/core/predicates",
    "connectors/jdbc/splits",
    "connectors/kafka/streams/pace",
    "connectors/kafka/streams/micro_batches",
    "connectors/kafka/offsets",
    "connectors/http/rate_limit",
    "connectors/http/driver_link",
    "connectors/http/driver_side",
    "connectors/http/rows",
    "connectors/kafka/streams/offsets",
    "planner/distribution",
    "commit/owner",
    "rebalance/channel_selector",
    "rebalance/protocol",
    "state/key_groups",
    "state/assignment",
    "state/log_entries",
    "state/recommendation",
    "state/rewrite_methods",
    "metrics",
    "streams/progress",
    "streams/advice",
    "history/record",
    "history/lines",
    "history/event_log",
    "history/logs",
    "history/summaries",
    "doctor",
    "web/views",
    "web/charts/layout",
    "web/charts/graph",
    "web/charts/bars",
    "web/charts/step",
    "web/steps",
    "web/findings",
    "web/comparison",
    "web/dashboard",
    "web/listing",
    "web/formatting",
    "web/pages",
    "web/store",
    "web/api",
    "web/api_schema",
)
BOUNDARIES = [
    ("connectors/http", ["connectors/__init__"]),
    ("connectors/kafka/streams", ["connectors/kafka/streaming", "state/progress_files", "streams"]),
    ("cli/shell", ["cli/main"]),
    ("cli/sql", ["cli/main"]),
    ("cli/statements", ["cli/shell", "cli/sql", "cli/backslash"]),
    ("cli/backslash", ["cli/shell"]),
    ("cli/keyboard", ["cli/shell"]),
]
"""Features that few jobs use, and the modules that may import them: the HTTP sink, paced streams and the SQL shell."""
JVM_PACKAGES = {"spark", "duckdb"}
"""Packages with Java classes."""
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
def test_the_core_imports_no_native_engine(path: Any) -> None:
    """Engines register themselves in the entry point group `penstock.engines`."""
    if room(path) != "duckdb":
        assert not any(module.startswith(("penstock.duckdb", "duckdb")) for module in imports(path))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_packages_with_java_access_the_jvm(path: Any) -> None:
    if room(path) not in JVM_PACKAGES:
        assert not JVM.search(path.read_text())


OUTSIDE = [path for path in MODULES if room(path) not in JVM_PACKAGES]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_jvm_access_through_wrappers(path: Any) -> None:
    assert not jvm_accesses(path.read_text())


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
    assert bool(jvm_accesses(text)) is is_leak


def test_the_interface_of_the_spark_package_is_typed() -> None:
    """An object of the JVM would have the type ``Any``, and mypy could not check its use."""
    interface = SparkInterface(OUTSIDE)
    assert {
        ("logical_plan", "LogicalPlan"),
        ("expressions", "Expression"),
        ("handles", "InternalRows"),
    } <= interface.names
    assert interface.untyped_hints() == []


@pytest.mark.duckdb
@pytest.mark.parametrize("name", PURE)
def test_pure_modules_import_no_spark(name: str) -> None:
    paths = [SOURCE / f"{name}.py"] if (SOURCE / f"{name}.py").exists() else sorted((SOURCE / name).rglob("*.py"))
    assert paths
    for path in paths:
        if path == CALLS_PYSPARK:
            continue
        for module in imports(path, for_types_too=False):
            is_pure = module.removeprefix("penstock.").replace(".", "/") in PURE
            assert is_pure or not module.startswith(("pyspark", "py4j", "penstock.spark"))


@pytest.mark.parametrize(("feature", "importers"), BOUNDARIES, ids=[feature for feature, _ in BOUNDARIES])
def test_features_that_few_jobs_use_have_a_boundary(feature: str, importers: list[str]) -> None:
    name = f"penstock.{feature.replace('/', '.')}"
    outside = set()
    for path in MODULES:
        module = str(path.relative_to(SOURCE).with_suffix(""))
        imported = any(other == name or other.startswith(f"{name}.") for other in imports(path))
        if imported and not module.startswith((feature, *importers)):
            outside.add(module)
    assert (SOURCE / feature).is_dir() or (SOURCE / f"{feature}.py").is_file()
    assert outside == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_and_classes_are_short(path: Any) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 450
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 300, node.name


def test_the_root_has_few_modules() -> None:
    assert sorted(path.name for path in SOURCE.glob("*.py")) == [
        "__init__.py",
        "__main__.py",
        "errors.py",
        "testing.py",
    ]


def test_folders_of_java_classes_are_small() -> None:
    folders = {path.parent for path in SOURCE.rglob("*.java")}
    assert folders
    assert max(len(list(folder.glob("*.java"))) for folder in folders) <= 30


def test_spark_settings_are_compared_case_insensitively() -> None:
    """Spark accepts ``TRUE`` too, see `penstock.spark.bridge.settings.is_true`."""
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


@pytest.mark.duckdb
def test_each_question_of_the_docs_has_a_file() -> None:
    text = (SOURCE.parent.parent / "docs" / "architecture.md").read_text()
    table = text.split("| question |")[1].split("\n\n")[0].splitlines()[2:]
    for row in table:
        (file,) = re.findall(r"`([\w/]+\.(?:py|java))`", row)
        assert (SOURCE / file).is_file()
