"""Makes the generated pages of the docs: the options from their declarations, the API from its docstrings."""

import argparse
import importlib
import inspect
import re
import sys
from enum import Enum
from pathlib import Path

from penstock.config import OPTIONS

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
MADE = "<!-- Made by tools/make_docs.py; `make docs` makes it anew. -->\n\n"
API = {
    "penstock": ("Environment", "rebalance", "rescale", "with_parallelism"),
    "penstock.scheduler.job": ("Job",),
    "penstock.shadow.comparison": ("Comparison", "ShadowReport", "Verdict"),
    "penstock.decisions": ("Decision", "DecisionKind", "DecisionLog", "Choice", "NodeRef", "VertexRef", "NameRef"),
    "penstock.events": (
        "JobStatusListener",
        "JobStatusEvent",
        "GraphPlanned",
        "GraphChanged",
        "ChangeRefused",
        "VerticesCreated",
        "VertexChanged",
        "VertexSnapshot",
        "ExecutionState",
        "DecisionMade",
        "DecisionSettled",
        "ErrorOccurred",
        "JobStateChanged",
    ),
    "penstock.explain": ("Explanation", "ExplainedNode"),
    "penstock.connectors": (
        "Source",
        "DynamicParallelismInference",
        "ParallelismInferenceContext",
        "ParallelismProvider",
        "SourceProvider",
        "SplitSource",
        "DataFrameScanProvider",
        "ScanContext",
        "Predicate",
        "FileSource",
        "Sink",
        "SinkJob",
        "SinkOptions",
        "SinkStage",
        "StageReport",
        "DataFrameSinkProvider",
        "FileSink",
        "DeltaSink",
        "IcebergSink",
        "JdbcSink",
        "KafkaSink",
        "CommittedPartition",
    ),
    "penstock.connectors.predicates": ("ColumnStatistics", "might_match"),
    "penstock.commit": ("Prepared", "Access", "Recovery"),
    "penstock.rebalance.operator": ("Rebalanced",),
    "penstock.state": ("inspect", "plan", "rescale", "abort", "prune", "start_query"),
    "penstock.state.inspection": ("Inspection", "StoreState"),
    "penstock.state.rescale": ("RescaleReport", "StoreReport"),
    "penstock.state.assignment": ("StateAssignment", "Change", "WorkUnit"),
    "penstock.state.key_groups": ("key_group", "default_max_parallelism"),
    "penstock.graph": (
        "StreamGraph",
        "StreamNode",
        "StreamEdge",
        "StreamGraphContext",
        "StreamEdgeUpdateRequest",
        "StreamNodeUpdateRequest",
        "GraphChange",
        "RefusedChange",
        "AdaptiveGraphManager",
        "JobGraph",
        "JobVertex",
        "JobEdge",
        "Operator",
        "OperatorKind",
        "ScanOperator",
        "CalcOperator",
        "AggregateOperator",
        "GroupingSets",
        "JoinOperator",
        "JoinSide",
        "JoinStrategy",
        "JoinSequence",
        "ShuffledJoin",
        "SinkOperator",
        "Side",
        "JoinType",
        "JoinInput",
        "FilterPath",
        "DynamicFilterRef",
    ),
    "penstock.graph.partitioner": (
        "Partitioner",
        "ForwardPartitioner",
        "HashPartitioner",
        "RangePartitioner",
        "RebalancePartitioner",
        "RescalePartitioner",
        "AdaptiveRebalancePartitioner",
        "AdaptiveRescalePartitioner",
        "BroadcastPartitioner",
        "GlobalPartitioner",
        "ForwardForUnspecifiedPartitioner",
        "ForwardForConsecutiveHashPartitioner",
    ),
    "penstock.optimizer.graphs": ("EquiJoin", "equi_join", "equi_joins", "joins_behind"),
    "penstock.testing": ("StrategyHarness", "stream_graph", "measured", "read_splits", "SplitReading"),
    "penstock.optimizer": (
        "StreamGraphOptimizationStrategy",
        "StrategyContext",
        "OperatorsFinished",
        "ResultInfo",
        "Resources",
    ),
    "penstock.errors": (
        "PenstockError",
        "ConfigError",
        "SessionError",
        "SourceError",
        "SinkError",
        "CommitError",
        "GraphError",
        "RebalanceError",
        "StateError",
        "HistoryError",
        "WebError",
        "RowsDifferError",
        "JobError",
        "JobCancelledError",
    ),
}


def show_default(option) -> str:
    if option.default is None:
        return "none"
    if option.kind.name == "memory size" and option.default:
        return f"{option.default >> 20} mb"
    return str(option.default).lower() if isinstance(option.default, bool) else str(option.default)


def options_page() -> str:
    lines = [
        "# Options\n",
        "Give them to `Environment(config={...})`, as `spark.penstock.<key>` in the Spark configuration, in a TOML file "
        "(`Environment(config_file=...)`, `--config` or the variable `PENSTOCK_CONFIG`), or as a variable "
        "`PENSTOCK_<KEY>` with `.` and `-` written as `_`. The first of these wins. `penstock options` lists them too.\n",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
    ]
    for option in OPTIONS:
        kind = " / ".join(option.choices) if option.choices else option.kind.name
        also = f" Also `{'`, `'.join(option.aliases)}`." if option.aliases else ""
        lines.append(f"| `{option.key}` | {kind} | {show_default(option)} | {option.doc}{also} |")
    return MADE + "\n".join(lines) + "\n"


def signature(thing) -> str:
    try:
        return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(thing)))  # annotations are kept as texts
    except ValueError:
        return "(...)"


def api_page() -> str:
    parts = ["# API\n"]
    for module_name, names in API.items():
        parts.append(f"## `{module_name}`\n")
        for name in names:
            thing = getattr(importlib.import_module(module_name), name)
            parts.append(f"### `{name}`\n")
            is_enum = inspect.isclass(thing) and issubclass(thing, Enum)
            if is_enum:
                parts.append("".join(f"* `{name}.{one.name}`: {one.value}\n" for one in thing))
            elif not issubclass(thing, BaseException) if inspect.isclass(thing) else True:
                parts.append(f"```python\n{name}{signature(thing)}\n```\n")
            parts.append(f"```text\n{inspect.getdoc(thing)}\n```\n")
            members = (
                inspect.getmembers(thing, lambda m: inspect.isfunction(m) or isinstance(m, property))
                if inspect.isclass(thing)
                else []
            )
            own = [(key, member) for key, member in members if not key.startswith("_") and key in vars(thing)]
            for key, member in own:
                call = key if isinstance(member, property) else key + signature(member)
                doc = (inspect.getdoc(member) or "").splitlines()
                parts.append(f"* `{call}`: {doc[0] if doc else ''}")
            if own:
                parts.append("")
    return MADE + "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a page is not up to date, change nothing")
    check = parser.parse_args().check
    stale = []
    for name, text in (("options.md", options_page()), ("api.md", api_page())):
        path = REFERENCE / name
        if check and (not path.exists() or path.read_text() != text):
            stale.append(name)
        elif not check:
            path.write_text(text)
    if stale:
        print(f"not up to date, run `make docs`: {', '.join(stale)}", file=sys.stderr)
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
