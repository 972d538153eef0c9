"""Families of Catalyst operators, by class name."""

from penstock.graph import OperatorKind

NARROW = frozenset(
    {
        "Project",
        "Filter",
        "Generate",
        "Expand",
        "ArrowEvalPython",
        "BatchEvalPython",
        "MapInPandas",
        "MapInArrow",
        "PythonMapInArrow",
        "DeserializeToObject",
        "SerializeFromObject",
        "MapElements",
        "MapPartitions",
        "Sample",
        "ScriptTransformation",
        "TypedFilter",
        "AppendColumns",
        "ArrowEvalPythonUDTF",
        "BatchEvalPythonUDTF",
    }
)
"""Operators that process single rows, or the rows of a task in their order."""

CHEAP = frozenset({"Project", "Filter"})
"""Operators with negligible cost per row."""

KEYED = {
    "Aggregate": OperatorKind.AGGREGATE,
    "Window": OperatorKind.WINDOW,
    "WindowGroupLimit": OperatorKind.WINDOW,
    "FlatMapGroupsInPandas": OperatorKind.GROUPED_MAP,
    "FlatMapGroupsInArrow": OperatorKind.GROUPED_MAP,
}
"""Operators that need rows with equal keys in the same task."""
