"""The wall to Spark's JVM: what other rooms take from `penstock.spark`, and who holds an object of the JVM while a job runs."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass, JavaMember, JavaObject, JavaPackage, JVMView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SOURCE = Path(__file__).parent.parent / "src" / "penstock"
BEHIND = {"_handle", "_bridge", "_get_object_id"}
"""What a wrapper keeps for its own room."""
OF_A_BRIDGE = {"spark", "session", "owns"}
"""What of a `Bridge` is not the JVM."""
JVM = (JavaObject, JavaMember, JavaClass, JavaPackage, JVMView)


def leaks(text: str) -> list[str]:
    """Return the places of a module's text that look behind a wrapper, or reach through a bridge into the JVM."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Attribute):
            continue
        of = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
        behind = node.attr in BEHIND and of != "self"
        through = of.lstrip("_") == "bridge" and node.attr not in OF_A_BRIDGE
        if behind or through:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


class Surface:
    """What other rooms import of `penstock.spark`, with all classes that it names."""

    def __init__(self, modules: list[Path]) -> None:
        self._made = {
            (path.stem, node.name): node
            for path in (SOURCE / "spark").rglob("*.py")
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        self._classes = {name: (module, name) for (module, name), node in self._made.items() if _is_class(node)}
        todo = [name for path in modules for name in _taken(ast.parse(path.read_text()))]
        self.names: set[tuple[str, str]] = set()
        while todo:
            name = todo.pop()
            if name in self._made and name not in self.names:
                self.names.add(name)
                todo += [
                    self._classes[one]
                    for _, hint in _hints(self._made[name])
                    for one in _names(hint) & set(self._classes)
                ]

    def untyped(self) -> list[str]:
        """Return what is given or taken as ``Any``; facts that are JSON are not meant."""
        return [
            f"{module}: {where} is {ast.unparse(hint)}"
            for module, name in sorted(self.names)
            if name != "Bridge"
            for where, hint in _hints(self._made[module, name])
            if "Any" in _names(hint) and ast.unparse(hint) != "Mapping[str, Any]"
        ]


def _is_class(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef)


def _taken(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Return what a module imports of `penstock.spark`: in which module it is, and its name."""
    there = {path.stem for path in (SOURCE / "spark").rglob("*.py")}
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("penstock.spark."):
            module = node.module.split(".")[-1]
            if module in there:
                yield from ((module, alias.name) for alias in node.names)
            else:
                modules |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield modules[node.value.id], node.attr


def _hints(node: ast.FunctionDef | ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.FunctionDef):
        given = node.args
        for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
            if one is not None and one.annotation is not None:
                yield f"{one.arg} of {node.name}", one.annotation
        if node.returns is not None:
            yield f"what {node.name} gives", node.returns
        return
    yield from ((node.name, base) for base in node.bases)
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            yield from ((f"{where} ({node.name})", hint) for where, hint in _hints(part))
        elif isinstance(part, ast.AnnAssign) and not part.target.id.startswith("_"):
            yield f"{node.name}.{part.target.id}", part.annotation


def _names(hint: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(hint) if isinstance(node, ast.Name)}


def _is_of_the_jvm(value: object, depth: int = 2) -> bool:
    if isinstance(value, JVM):
        return True
    if not depth or not isinstance(value, list | tuple | set | frozenset | dict):
        return False
    inner = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
    return any(_is_of_the_jvm(one, depth - 1) for one in inner)


@contextmanager
def guarded() -> Iterator[set[str]]:
    """Collect, while the block runs, the variables outside of `penstock.spark` that hold an object of the JVM."""
    found: set[str] = set()

    def look(frame: DataFrame, event: Any, _: Any) -> None:
        if event != "return":
            return
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("penstock.") and module.split(".")[1] not in {"spark", "spark_errors"}:
            for name, value in frame.f_locals.items():
                if _is_of_the_jvm(value):
                    found.add(f"{module}, {frame.f_code.co_name}: {name}")

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
