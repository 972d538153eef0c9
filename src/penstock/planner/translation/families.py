"""Families of Catalyst's operators, by their class names."""

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
"""What computes rows of single rows, or of a task's rows as they come."""

CHEAP = frozenset({"Project", "Filter"})
"""What costs next to nothing for each row."""

KEYED = {
    "Aggregate": OperatorKind.AGGREGATE,
    "Window": OperatorKind.WINDOW,
    "WindowGroupLimit": OperatorKind.WINDOW,
    "FlatMapGroupsInPandas": OperatorKind.GROUPED_MAP,
    "FlatMapGroupsInArrow": OperatorKind.GROUPED_MAP,
}
"""What needs rows with equal keys in one task."""
