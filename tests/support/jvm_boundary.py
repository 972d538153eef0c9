"""Checks that objects of the JVM stay inside `penstock.spark` and `penstock.duckdb`: in the source, and in a job."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass, JavaMember, JavaObject, JavaPackage, JVMView

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SOURCE = ROOT / "src" / "penstock"
PRIVATE_ATTRIBUTES = {"_handle", "_bridge", "_get_object_id"}
"""Attributes of wrappers for use inside `penstock.spark` only."""
PURE_BRIDGE_ATTRIBUTES = {"spark", "session", "owns"}
"""Attributes of a `Bridge` that do not access the JVM."""
JVM_CLASSES = (JavaObject, JavaMember, JavaClass, JavaPackage, JVMView)


def jvm_accesses(text: str) -> list[str]:
    """Return the expressions in a module's source that access the JVM through a wrapper or a bridge."""
    accesses = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
        is_private = node.attr in PRIVATE_ATTRIBUTES and owner != "self"
        uses_bridge = owner.lstrip("_") == "bridge" and node.attr not in PURE_BRIDGE_ATTRIBUTES
        if is_private or uses_bridge:
            accesses.append(f"line {node.lineno}: {ast.unparse(node)}")
    return accesses


class SparkInterface:
    """The functions and classes of `penstock.spark` that other packages import, and the classes in their signatures."""

    def __init__(self, modules: list[Path]) -> None:
        self._definitions = {
            (_module(path), node.name): node
            for path in (SOURCE / "spark").rglob("*.py")
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        self._classes = {name: (module, name) for (module, name), node in self._definitions.items() if _is_class(node)}
        pending = [name for path in modules for name in _imported(ast.parse(path.read_text()))]
        self.names: set[tuple[str, str]] = set()
        while pending:
            name = pending.pop()
            if name in self._definitions and name not in self.names:
                self.names.add(name)
                pending += [
                    self._classes[class_name]
                    for _, hint in _hints(self._definitions[name])
                    for class_name in _names(hint) & set(self._classes)
                ]

    def untyped_hints(self) -> list[str]:
        """Describe the parameters and results of type ``Any``; ``Mapping[str, Any]`` is allowed for JSON."""
        return [
            f"{module}: {where} is {ast.unparse(hint)}"
            for module, name in sorted(self.names)
            if name != "Bridge"
            for where, hint in _hints(self._definitions[module, name])
            if "Any" in _names(hint) and ast.unparse(hint) != "Mapping[str, Any]"
        ]


def _module(path: Path) -> str:
    """Return the name under which other packages import from a file: that of the package if it exports the names."""
    return "exchange" if path.parent.name == "exchange" else path.stem


def _is_class(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef)


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield what a module imports from `penstock.spark`, as module and name."""
    spark_modules = {_module(path) for path in (SOURCE / "spark").rglob("*.py")}
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("penstock.spark."):
            module = node.module.split(".")[-1]
            if module in spark_modules:
                yield from ((module, alias.name) for alias in node.names)
            else:
                modules |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield modules[node.value.id], node.attr


def _hints(node: ast.FunctionDef | ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.FunctionDef):
        args = node.args
        for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
            if arg is not None and arg.annotation is not None:
                yield f"{arg.arg} of {node.name}", arg.annotation
        if node.returns is not None:
            yield f"the result of {node.name}", node.returns
        return
    yield from ((node.name, base) for base in node.bases)
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            yield from ((f"{where} ({node.name})", hint) for where, hint in _hints(part))
        elif isinstance(part, ast.AnnAssign) and not part.target.id.startswith("_"):
            yield f"{node.name}.{part.target.id}", part.annotation


def _names(hint: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(hint) if isinstance(node, ast.Name)}


def _is_jvm_object(value: object, depth: int = 2) -> bool:
    if isinstance(value, JVM_CLASSES):
        return True
    if not depth or not isinstance(value, list | tuple | set | frozenset | dict):
        return False
    inner = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
    return any(_is_jvm_object(element, depth - 1) for element in inner)


@contextmanager
def collect_jvm_variables() -> Iterator[set[str]]:
    """Collect the local variables of packages that must not hold objects of the JVM, but do so during the block."""
    variables: set[str] = set()

    def check(frame: DataFrame, event: Any, _: Any) -> None:
        if event != "return":
            return
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("penstock.") and module.split(".")[1] not in {"spark", "duckdb"}:
            for name, value in frame.f_locals.items():
                if _is_jvm_object(value):
                    variables.add(f"{module}, {frame.f_code.co_name}: {name}")

    threading.setprofile(check)
    sys.setprofile(check)
    try:
        yield variables
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
