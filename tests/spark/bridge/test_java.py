"""The package's Java classes: each has a caller, and each compiles with javac and Janino, with equal results."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F

from penstock.spark.bridge import answers, java_classes
from penstock.spark.bridge.java_classes import CompiledClasses, JavaClasses, ShippedClasses, new_instance, shipped_jar
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans import catalyst
from penstock.spark.plans.nodes import read_plan
from tools.java_classes import PACKAGE, CannotCompileError, make_jar, sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FILES = {file.stem: file for file in sources()}
JAVA = {name: file.read_text() for name, file in FILES.items()}
PYTHON = "\n".join(file.read_text() for room in ("spark", "duckdb") for file in sorted((PACKAGE / room).rglob("*.py")))
HELPERS = Counter(re.findall(r'helper\((?:bridge, )?"(\w+)"(?:, on_executors=\w+)?\)\s*\.(\w+)\(', PYTHON))
INSTANCES = set(re.findall(r'new_instance\(\w+(?:\.\w+)?, "(\w+)"', PYTHON)) | {
    "KeyGroupMover",
    "RowMover",
    "SnapshotMover",
}
METHOD = re.compile(
    r"^ +(?:(public|private) )?(?:static )?(?:final )?[\w.<>\[\], ?]+ (\w+)\([^;{]*\)[^;{]*\{$", re.MULTILINE
)
DECLARED = re.compile(r"^    (?:abstract )?\w[\w.<>\[\], ?]* (\w+)\([^;{=]*\)[^;{=]*;$", re.MULTILINE)
"""Abstract methods of interfaces and classes."""
OVERRIDDEN = re.compile(r"@Override\s+[^{]*\{")
FOR_TASKS = {
    "CoalescedLayouts",
    "KeyGroupMover",
    "LayoutCheck",
    "WindowChunkCheck",
    "PulledRows",
    "RowMover",
    "SnapshotMover",
    "TaskAttempt",
}


def methods(source: str) -> list[tuple[str, str]]:
    """Return the visibility and the name of each method that does not override another."""
    own = OVERRIDDEN.sub("", source)
    named = [(match[1] or "", match[2]) for match in METHOD.finditer(own)]
    named += [("", match[1]) for match in DECLARED.finditer(own)]
    return [
        (visibility, name) for visibility, name in named if name[0].islower() and name not in {"if", "for", "while"}
    ]


@pytest.mark.duckdb
@pytest.mark.parametrize("name", JAVA)
def test_every_class_and_method_has_a_caller(name: Any) -> None:
    others = "\n".join(text for other, text in JAVA.items() if other != name)
    subclasses = OVERRIDDEN.sub("", "\n".join(text for text in JAVA.values() if f" extends {name} " in text))
    called = {method for cls, method in HELPERS if cls == name}
    assert called or name in INSTANCES or re.search(rf"\b{name}\b", others), "the class is unused"
    own_methods = methods(JAVA[name])
    for visibility, method in own_methods:
        if method == "writeReplace":  # Java's serialisation calls it
            continue
        calls = len(re.findall(rf"\b{method}\(", JAVA[name])) - sum(method == other for _, other in own_methods)
        if visibility != "private":
            calls += len(re.findall(rf"\.{method}\(", others)) + len(re.findall(rf"\b{method}\(", subclasses))
        if visibility == "public" and name in {cls for cls, _ in HELPERS}:
            calls = method in called or f".{method}(" in others
        elif visibility == "public":  # of objects that Python holds: answers, or objects with state
            calls += len(re.findall(rf"\.{method}\b", PYTHON))
        assert calls, f"{method} has no caller"


def test_methods_that_python_calls_exist() -> None:
    assert len(HELPERS) > 15
    for name, method in HELPERS:
        assert ("public", method) in methods(JAVA[name]), f"{name}.{method}"


@pytest.mark.parametrize("name", JAVA)
def test_files_are_small(name: Any) -> None:
    assert len(JAVA[name].splitlines()) < 250


def test_classes_have_unique_names_and_the_package_of_their_folder() -> None:
    assert len(FILES) == len(sources())
    for name, file in FILES.items():
        package = ".".join(file.relative_to(PACKAGE).parent.parts[2:])
        assert JAVA[name].startswith(f"package {package};\n"), name


def test_folders_are_small() -> None:
    assert max(Counter(file.parent for file in FILES.values()).values()) <= 30


def test_the_core_does_not_import_the_engine() -> None:
    core = [name for name, file in FILES.items() if file.relative_to(PACKAGE).parts[0] == "spark"]
    assert len(core) > 50
    assert [name for name in core if "penstock.duckdb" in JAVA[name]] == []


def test_a_method_without_a_caller_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, method in (("PlanSearch", "observesMetrics"), ("GroupMover", "setGroups"), ("GroupRows", "next")):
        monkeypatch.setitem(JAVA, name, JAVA[name].replace(f" {method}(", " unused("))
        with pytest.raises(AssertionError, match="unused has no caller"):
            test_every_class_and_method_has_a_caller(name)
    monkeypatch.setitem(JAVA, "Unused", "package penstock.plans;\n\nfinal class Unused {\n}\n")
    with pytest.raises(AssertionError, match="the class is unused"):
        test_every_class_and_method_has_a_caller("Unused")


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return make_jar(tmp_path_factory.mktemp("jar"))
    except CannotCompileError as error:
        assert os.environ.get("ALL_CHECKS") != "1", error
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def both(spark: SparkSession, jar: Any) -> dict[str, JavaClasses]:
    bridge = Bridge(spark)
    return {"shipped": JavaClasses(ShippedClasses(bridge, jar)), "compiled": JavaClasses(CompiledClasses(bridge))}


def in_new_thread(function: Any, *arguments: Any) -> Any:
    """Call a function in a new thread: py4j caches classes by name per thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


@pytest.mark.parametrize("way", ["shipped", "compiled"])
@pytest.mark.parametrize("name", JAVA)
def test_classes_load_either_way(spark: SparkSession, both: Any, way: str, name: Any) -> None:
    """Classes link and initialize: ``forName`` with ``initialize`` runs static initializers."""
    bridge = Bridge(spark)
    origin = both[way]._origin
    loaded, _ = origin.load(bridge, name, on_executors=name in FOR_TASKS)
    java_class = bridge.find("java.lang.Class").forName(loaded.getName(), True, loaded.getClassLoader())
    assert java_class.getDeclaredMethods() is not None


def test_both_compilers_have_equal_results(spark: SparkSession, both: Any, tmp_path: Path) -> None:
    spark.range(50).selectExpr("id as k", "id % 7 as v", "'text' as t").coalesce(1).write.parquet(str(tmp_path / "l"))
    spark.range(9).selectExpr("id as j").write.parquet(str(tmp_path / "r"))
    left, right = (spark.read.parquet(str(tmp_path / name)) for name in ("l", "r"))
    joined = left.where("v > 3 and v / 2 < 1e6").join(right.hint("merge"), F.col("k") == F.col("j"), "left")
    bridge = Bridge(spark)
    plan = catalyst.optimized_plan(bridge, joined.groupBy("k").agg(F.sum("v"), F.collect_list("t")))
    nodes = list(read_plan(plan).walk())
    (join,) = (node._handle for node in nodes if node.name == "Join")
    leaf = next(node._handle for node in nodes if node.files is not None)
    (function,) = (node._handle for node in nodes if node.name == "Aggregate")
    total = function.aggregateExpressions().apply(1).child().aggregateFunction()
    none, file = bridge.seq([]), bridge.seq([next((tmp_path / "l").glob("*.parquet")).as_uri()])
    above = bridge.seq([catalyst.optimized_plan(bridge, left.where("k > 99"))._handle.condition()])

    def query_all(classes: JavaClasses) -> dict[str, object]:
        def helper(name: str) -> Any:
            return classes.helper(bridge, name, on_executors=name in FOR_TASKS)

        session = bridge.session.clone()
        helper("SessionSettings").set(session, '{"spark.sql.files.maxPartitionBytes": "12345"}')
        split = helper("FileRelations").withSplitSize(leaf, session).relation().options()
        scala = helper("ScalaValues")
        return {
            "plan": answers.text(helper("PlanReader").read(plan)),
            "join": answers.text(helper("JoinReader").read(join)),
            "no join": helper("JoinReader").read(scala.copied(join, scala.seq("condition"), scala.seq(bridge.none))),
            "sql": answers.text(helper("PlanReader").sql(join.condition().get())),
            "files": answers.text(helper("FileRelations").list(leaf, leaf, none)),
            "split": str(split),
            "settings": answers.text(helper("SessionSettings").read(session, "spark.sql.files.maxP")),
            "metrics": helper("PlanSearch").observesMetrics(plan),
            "sizes": answers.text(helper("PlanSearch").advisorySizesAndOptions(plan)),
            "same": helper("ListingComparison").readsSameFiles(plan, plan),
            "mixed": helper("ListingComparison").mixesListings(plan),
            "left": helper("RowGroups").matchFraction(bridge.session, file, above),
            "overflow": helper("ExpressionSafety").cannotOverflow(total),
            "layout": str(helper("HashedLayout").of(exchanged, exchanged.output())),
            "scans": answers.text(helper("ScanMetrics").rows(exchanged)),
            "tasks": helper("ScanMetrics").tasks(exchanged, 3),
        }

    exchanged = spark.range(5).repartition(3, "id")._jdf.queryExecution().sparkPlan()
    shipped, compiled_results = (in_new_thread(query_all, both[way]) for way in ("shipped", "compiled"))
    assert shipped == compiled_results
    assert (shipped["left"], shipped["no join"], shipped["same"], shipped["mixed"]) == (0.0, None, True, False)
    assert "maxPartitionBytes" in shipped["settings"]
    assert "12345" in shipped["settings"]
    assert "12345" in shipped["split"]
    assert '"name":"Aggregate"' in shipped["plan"]


def test_the_jar_is_for_a_single_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert shipped_jar((4, 3)) is None, "the sources have no jar beside them"
    jar = tmp_path / "spark" / "java" / "penstock-spark4.2.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.setattr(java_classes, "_PACKAGE", tmp_path)
    assert shipped_jar((4, 2)) == jar
    assert shipped_jar((4, 3)) is None
    assert shipped_jar((4, 1)) is None


def test_a_class_that_does_not_compile_affects_no_other(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(PACKAGE / "spark" / "java", tmp_path / "spark" / "java")
    broken = tmp_path / FILES["KeyGroupReader"].relative_to(PACKAGE)
    broken.write_text(broken.read_text().replace("provider.rocksDB()", "provider.notInThisSpark()"))
    monkeypatch.setattr(java_classes, "_PACKAGE", tmp_path)

    def read_with_broken_class() -> Any:
        bridge = Bridge(spark)
        classes = JavaClasses(CompiledClasses(bridge))
        with pytest.raises(Py4JJavaError, match="notInThisSpark"):
            classes.new_instance(bridge, "KeyGroupMover", on_executors=True)
        plan = catalyst.optimized_plan(bridge, spark.range(3))
        assert classes.helper(bridge, "LayoutCheck", on_executors=True) is not None
        return answers.facts(classes.helper(bridge, "PlanReader", on_executors=False).read(plan))

    assert in_new_thread(read_with_broken_class)[0]["name"] == "Range"


def test_objects_without_state_are_created_once(spark: SparkSession) -> None:
    bridge, other = Bridge(spark), Bridge(spark)
    assert bridge.helper("PlanReader") is bridge.helper("PlanReader")
    assert bridge.helper("PlanReader") is other.helper("PlanReader")
    assert not new_instance(bridge, "KeyGroupMover").equals(new_instance(bridge, "KeyGroupMover"))
