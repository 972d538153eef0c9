"""Pages of the API: a page for each package, from signatures and docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from griffe import Docstring, DocstringSection, DocstringSectionKind

from penstock.entry.result_actions import ResultActions
from penstock.scheduler.job_status import JobStatus

API: dict[str, tuple[str, ...]] = {
    "penstock": (),
    "penstock.scheduler.job": ("Job",),
    "penstock.decisions.log": (
        "Decision",
        "DecisionKind",
        "DecisionLog",
        "Choice",
        "Explanation",
        "NodeRef",
        "VertexRef",
        "NameRef",
    ),
    "penstock.decisions.estimates": ("Estimate", "Unit", "EstimateRecord"),
    "penstock.decisions.record": ("DecisionRecord", "JobSummary"),
    "penstock.events": (),
    "penstock.report.explain": ("ExplainedPlan", "ExplainedNode", "ExplainedInput"),
    "penstock.report.analysis": ("Analysis",),
    "penstock.rebalance.operator": ("Rebalanced",),
    "penstock.shadow.comparison": ("Comparison", "ShadowReport", "Verdict"),
    "penstock.connectors": (),
    "penstock.connectors.core.predicates": (),
    "penstock.commit": ("Access", "Prepared", "Recovery"),
    "penstock.state": (),
    "penstock.state.inspection": ("Inspection", "StoreState"),
    "penstock.state.recommendation": ("Recommendation",),
    "penstock.state.preflight": ("RescalePlan", "StorePlan"),
    "penstock.state.rescale": ("RescaleReport", "StoreReport"),
    "penstock.state.rewrite_methods": ("RewriteMethod",),
    "penstock.state.assignment": (),
    "penstock.state.key_groups": ("key_group", "default_max_parallelism"),
    "penstock.optimizer": (),
    "penstock.optimizer.optimizer": ("DEFAULT_STRATEGIES",),
    "penstock.optimizer.build_side_first": ("BuildSideFirst",),
    "penstock.optimizer.broadcast_join": ("AdaptiveBroadcastJoin",),
    "penstock.optimizer.dynamic_filtering": ("DynamicFiltering",),
    "penstock.optimizer.join_order": ("JoinOrder",),
    "penstock.optimizer.early_aggregation": ("EarlyAggregation",),
    "penstock.optimizer.skewed_join": ("AdaptiveSkewedJoin",),
    "penstock.optimizer.skewed_aggregation": ("AdaptiveSkewedAggregation",),
    "penstock.optimizer.skewed_window": ("AdaptiveSkewedWindow",),
    "penstock.optimizer.join_algorithm": ("JoinAlgorithm",),
    "penstock.optimizer.collapse_exchanges": ("CollapseExchanges",),
    "penstock.optimizer.graphs": (),
    "penstock.graph": (),
    "penstock.graph.partitioner": ("*", "FORWARD", "REBALANCE", "RESCALE", "BROADCAST", "GLOBAL"),
    "penstock.testing": ("*", "ARROWS", "RESOURCES"),
    "penstock.config": ("Configuration", "Option"),
    "penstock.errors": (),
}
"""Modules and names of the API page. No names, or `*`, stand for all of `public_names`."""
BASES = (JobStatus, ResultActions)
"""Classes that are not on the API page: their members are listed with the classes that inherit from them."""
EXAMPLES = """\
Tests run the examples of docstrings. In them, `spark` is a session, and `env` is an `Environment` that also runs small
queries as jobs: its option `execution.batch.adaptive.whole-query-threshold` is 0. `job` is a finished job, `folder` is
an empty folder, and `checkpoint` is the folder of a stopped streaming query. `F` stands for `pyspark.sql.functions`,
and `pa` for `pyarrow`.
"""


def public_names(module: ModuleType) -> list[str]:
    """Return the names in `__all__`, or else the public classes and functions in the order of definition."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("__")]
    return [
        name
        for name, member in vars(module).items()
        if not name.startswith("_") and getattr(member, "__module__", "") == module.__name__
        if inspect.isclass(member) or inspect.isfunction(member)
    ]


def signature(documented: Any) -> str:
    """Return the parameters of a class or function; annotations that are strings lose their quotes."""
    try:
        text = str(inspect.signature(documented))
    except ValueError:
        return "(...)"
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text).replace("<factory>", "...")
    return text.removesuffix(" -> None") if inspect.isclass(documented) else text


def documented_constant(name: str) -> tuple[str, str]:
    """Return the assignment to a name in Penstock's modules, and the docstring behind it."""
    modules = (module for key, module in sorted(sys.modules.items()) if key.startswith("penstock"))
    for module in [module for module in modules if name in vars(module)]:
        source = Path(str(module.__file__)).read_text()
        body = ast.parse(source).body
        for statement, following in zip(body, [*body[1:], None], strict=True):
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                has_docstring = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                return ast.get_source_segment(source, statement) or name, str(
                    following.value.value
                ) if has_docstring else ""
    raise KeyError(name)


def member_lines(documented: type) -> list[str]:
    """Return a line for each public method, property and enum value of a class, and of its bases in `BASES`."""
    is_enum = issubclass(documented, Enum)
    lines = [f"* `{member.name}`: `{member.value!r}`" for member in documented] if is_enum else []
    members = {
        key: member for base in (*BASES, documented) if base in documented.__mro__ for key, member in vars(base).items()
    }
    for key, member in sorted(members.items()):
        function = getattr(member, "__func__", member)  # the function of a class method
        if key.startswith("_") or not (inspect.isfunction(function) or isinstance(member, property | cached_property)):
            continue
        if issubclass(documented, BaseException):  # class methods of errors are internal constructors
            continue
        call = key + signature(function) if inspect.isfunction(function) else key
        doc = (inspect.getdoc(member) or "").splitlines()
        lines.append(f"* `{call}`: {doc[0].replace('``', '`') if doc else ''}")
    return lines


def markdown(docstring: str) -> str:
    """Return a numpy docstring as Markdown: code between single backticks, examples as blocks, parameters as a list."""
    sections = Docstring(docstring).parse("numpy", trim_doctest_flags=False, warnings=False)
    return re.sub(
        r"(?<!`)``([^`]+)``(?!`)", r"`\1`", "\n".join(line for section in sections for line in _lines(section))
    )


def _lines(section: DocstringSection) -> Iterator[str]:
    match section.kind:
        case DocstringSectionKind.text:
            yield f"{_with_fences(section.value)}\n"
        case DocstringSectionKind.admonition:
            yield f"**{section.title}**\n\n{_with_fences(section.value.contents)}\n"
        case _:
            yield f"**{section.kind.value.capitalize()}**\n"
            for item in section.value:
                name = getattr(item, "name", "") or str(item.annotation)
                yield f"* `{name}`: {item.description.replace(chr(10), chr(10) + '  ')}"
            yield ""


def _with_fences(text: str) -> str:
    """Return a text with its doctest examples as blocks of code."""
    paragraphs = (
        f"```pycon\n{paragraph}\n```" if paragraph.startswith(">>>") else paragraph for paragraph in text.split("\n\n")
    )
    return "\n\n".join(paragraphs)


def entry(name: str, documented: Any, module: str) -> list[str]:
    """Return the lines of an API page for a name of a module."""
    import_line = f"from {module} import {name}"
    parts = [f"## `{name}`\n"]
    if not inspect.isclass(documented) and not inspect.isfunction(documented):
        assignment, doc = documented_constant(name)
        return [*parts, f"```python\n{import_line}\n\n{assignment}\n```\n", *([markdown(doc)] if doc else [])]
    if inspect.isclass(documented) and issubclass(documented, BaseException | Enum):
        parts.append(f"```python\n{import_line}\n```\n")
    else:
        parts.append(f"```python\n{import_line}\n\n{name}{signature(documented)}\n```\n")
    parts.append(markdown(inspect.getdoc(documented) or ""))
    members = member_lines(documented) if inspect.isclass(documented) else []
    return [*parts, *(["**Members**\n", *members, ""] if members else [])]


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    seen: set[int] = set()
    packages = groupby(API, lambda module: ".".join(module.split(".")[:2]))
    texts = {package: package_page(package, list(modules), seen) for package, modules in packages}
    index = "\n".join(f"* [`{package}`]({package}.md): {_summary(package)}" for package in texts)
    return {"README.md": f"# API\n\n{EXAMPLES}\n{index}\n"} | {f"{name}.md": text for name, text in texts.items()}


def _summary(package: str) -> str:
    return (inspect.getdoc(importlib.import_module(package)) or "").partition("\n")[0]


def package_page(package: str, modules: list[str], seen: set[int]) -> str:
    """Return the page of a package; `seen` has the ids of what other pages describe already."""
    parts = [f"# {package}\n", f"{_summary(package)}\n"]
    for module_name in modules:
        module = importlib.import_module(module_name)
        chosen = API[module_name]
        public = public_names(module) if not chosen or "*" in chosen else []
        for name in [*public, *(name for name in chosen if name != "*")]:
            documented = getattr(module, name)
            if id(documented) not in seen:
                seen.add(id(documented))
                parts += entry(name, documented, module_name)
    return "\n".join(parts).rstrip() + "\n"
