"""Makes the generated pages of the docs, from declarations and docstrings, and fills in figures from bench/results."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import sys
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import figures
from penstock.cli.main import main as penstock
from penstock.config import OPTIONS
from penstock.metrics.instruments import INSTRUMENTS, SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
MADE = "<!-- Made by tools/make_docs.py; `make docs` makes it anew. -->\n\n"
API: dict[str, tuple[str, ...]] = {
    "penstock": (),
    "penstock.scheduler.job": ("Job",),
    "penstock.decisions": (
        "Decision",
        "DecisionKind",
        "DecisionLog",
        "Choice",
        "Told",
        "NodeRef",
        "VertexRef",
        "NameRef",
    ),
    "penstock.estimates": ("Estimate", "Unit"),
    "penstock.told": ("ToldDecision", "ToldEstimate"),
    "penstock.summary": ("JobSummary",),
    "penstock.events": (),
    "penstock.explain": ("Explanation", "ExplainedNode", "ExplainedInput"),
    "penstock.analysis": ("Analysis",),
    "penstock.rebalance.operator": ("Rebalanced",),
    "penstock.shadow.comparison": ("Comparison", "ShadowReport", "Verdict"),
    "penstock.connectors": (),
    "penstock.connectors.predicates": (),
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
"""The modules of the API page. With no names, or with `*`: all of `__all__`, or all public classes and functions."""


def names_of(module: ModuleType) -> list[str]:
    """Return the public names of a module, in the order of its text if it has no `__all__`."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("__")]
    return [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
        if inspect.isclass(thing) or inspect.isfunction(thing)
    ]


def options_page() -> str:
    lines = [
        "# Options\n",
        (
            "Give them to `Environment(config={...})`, as `spark.penstock.<key>` in the Spark configuration, in a TOML "
            "file (`Environment(config_file=...)`, `--config` or the variable `PENSTOCK_CONFIG`), or as a variable "
            "`PENSTOCK_<KEY>` with `.` and `-` written as `_`. The first of these wins. `penstock options` lists them "
            "too.\n"
        ),
        "| key | type | default | meaning |",
        "|---|---|---|---|",
    ]
    for option in OPTIONS:
        kind = " / ".join(option.choices) if option.choices else option.kind.name
        also = f" Also `{'`, `'.join(option.aliases)}`." if option.aliases else ""
        lines.append(f"| `{option.key}` | {kind} | {option.shown(option.default)} | {option.doc}{also} |")
    return MADE + "\n".join(lines) + "\n"


def signature(thing: Any) -> str:
    """Return the parameters of a class or function; annotations are kept as texts, and are shown without quotes."""
    try:
        shown = str(inspect.signature(thing))
    except ValueError:
        return "(...)"
    shown = re.sub(r"(: |-> )'([^']*)'", r"\1\2", shown).replace("<factory>", "...")
    return shown.removesuffix(" -> None") if inspect.isclass(thing) else shown


def documented_constant(name: str) -> tuple[str, str]:
    """Return the assignment to a name in one of Penstock's modules, and the text behind it."""
    for module in [
        found for key, found in sorted(sys.modules.items()) if key.startswith("penstock") and name in vars(found)
    ]:
        source = Path(str(module.__file__)).read_text()
        body = ast.parse(source).body
        for statement, following in zip(body, [*body[1:], None], strict=True):
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                return ast.get_source_segment(source, statement) or name, str(following.value.value) if is_text else ""
    raise KeyError(name)


def members_of(thing: type) -> list[str]:
    """Return a line for each public method, property and enum value that a class defines itself."""
    lines = [f"* `{one.name}`: `{one.value!r}`" for one in thing] if issubclass(thing, Enum) else []
    for key, member in sorted(vars(thing).items()):
        function = getattr(member, "__func__", member)  # of a class method
        if key.startswith("_") or not (inspect.isfunction(function) or isinstance(member, property | cached_property)):
            continue
        if issubclass(thing, BaseException):  # its class methods build errors inside Penstock
            continue
        call = key + signature(function) if inspect.isfunction(function) else key
        doc = (inspect.getdoc(member) or "").splitlines()
        lines.append(f"* `{call}`: {doc[0] if doc else ''}")
    return lines


def entry(name: str, thing: Any) -> list[str]:
    """Return what the page says of one name."""
    if not inspect.isclass(thing) and not inspect.isfunction(thing):
        assignment, doc = documented_constant(name)
        return [f"### `{name}`\n", f"```python\n{assignment}\n```\n", *([f"{doc}\n"] if doc else [])]
    parts = [f"### `{name}`\n"]
    if not inspect.isclass(thing) or not issubclass(thing, BaseException | Enum):
        parts.append(f"```python\n{name}{signature(thing)}\n```\n")
    parts.append(f"```text\n{inspect.getdoc(thing)}\n```\n")
    members = members_of(thing) if inspect.isclass(thing) else []
    return [*parts, *members, *([""] if members else [])]


def api_page() -> str:
    parts = ["# API\n"]
    seen: set[int] = set()
    for module_name, chosen in API.items():
        module = importlib.import_module(module_name)
        parts.append(f"## `{module_name}`\n")
        everything = names_of(module) if not chosen or "*" in chosen else []
        for name in [*everything, *(name for name in chosen if name != "*")]:
            thing = getattr(module, name)
            if id(thing) not in seen:
                seen.add(id(thing))
                parts += entry(name, thing)
    return MADE + "\n".join(parts)


def commands_page() -> str:
    parts = [
        "# Command line\n",
        (
            "The exit code is 0 if all went well, 1 if what was asked for could not be done, and 2 if the call is "
            "wrong. `penstock run` and `penstock-python` end with the exit code of their file, and `penstock verify` "
            "has its own. An error is one message on standard error: what happened, the cause, and what to do. What "
            "can be checked is checked before Spark starts. `python -m penstock` is the same command.\n"
        ),
    ]
    for path, command in commands("penstock", penstock):
        context = click.Context(command, info_name=path, terminal_width=100, help_option_names=["-h", "--help"])
        parts.append(f"## `{path}`\n\n```text\n{command.get_help(context)}\n```\n")
    return MADE + "\n".join(parts)


def metrics_page() -> str:
    parts = [
        "# Metrics\n",
        (
            "What a driver counts of its jobs: see [how to read them](../how-to/see-jobs.md#metrics). No figure is "
            "told apart by the job's name, which may be a whole SQL text.\n"
        ),
        "| Prometheus | OpenTelemetry | kind | unit | told apart by | what it is |\n|---|---|---|---|---|---|",
        *(
            f"| `{one.prometheus_name}` | `{one.name}` | {one.kind} | {one.unit} | {one.label} | {one.doc} |"
            for one in INSTRUMENTS
        ),
        f"\nHistograms have the bounds {', '.join(f'{bound:g}' for bound in SECONDS)} seconds.\n",
    ]
    return MADE + "\n".join(parts)


def commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Iterate over a command and those below it, with their whole names."""
    yield path, command
    if isinstance(command, click.Group):
        for name, below in sorted(command.commands.items()):
            yield from commands(f"{path} {name}", below)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a page is not up to date, change nothing")
    check = parser.parse_args().check
    stale, bare = [], []
    pages = {"options": options_page, "api": api_page, "cli": commands_page, "metrics": metrics_page}
    for name, text in ((f"{page}.md", made()) for page, made in pages.items()):
        path = REFERENCE / name
        if check and (not path.exists() or path.read_text() != text):
            stale.append(name)
        elif not check:
            path.write_text(text)
    for path in figures.PAGES:
        name, text = str(path.relative_to(ROOT)), path.read_text()
        made = figures.filled(text)
        bare += [f"{name}: {claim}" for claim in figures.bare_figures(text)]
        if check and made != text:
            stale.append(name)
        elif made != text:
            path.write_text(made)
    for claim in bare:
        print(f"a claim of speed without a table, see tools/figures.py: {claim}", file=sys.stderr)
    if stale:
        print(f"not up to date, run `make docs`: {', '.join(stale)}", file=sys.stderr)
    return bool(stale or bare)


if __name__ == "__main__":
    sys.exit(main())
