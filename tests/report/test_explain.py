"""A plan before it runs is printed as a tree of steps."""

from __future__ import annotations

from penstock.decisions.log import DecisionLog
from penstock.report.explain import LATER, ExplainedInput, ExplainedNode, ExplainedPlan
from tests.support.words import INTERNAL_TERMS


def node(number: int, label: str, tasks: int | None, *inputs: tuple[int, str], reason: str = LATER) -> ExplainedNode:
    return ExplainedNode(
        number,
        "Kind",
        f"Name{number}",
        label,
        "",
        tasks,
        reason,
        tuple(ExplainedInput(source, "HASH(none#1)", edge_label) for source, edge_label in inputs),
    )


PLAN = (
    node(1, "orders", 2, reason="2 files of 20.0 MiB"),
    node(2, "", None, (1, "")),  # a projection has no line
    node(3, "customer", 1, reason="1 file of 1.0 MiB"),
    node(4, "orders join customer on o_custkey", None, (2, "shuffled by o_custkey"), (3, "broadcast")),
    node(5, "aggregate by c_name", None, (4, "shuffled by c_name")),
    node(6, "aggregate by o_date", 4, (4, "shuffled by o_date"), reason="set by the user"),
    node(7, "sort by o_date", 4, (6, ""), reason="set by the user"),  # in the tasks of the aggregate
    node(8, "return rows", None, (5, ""), (7, "to one task")),
)


def test_a_plan_prints_as_a_tree() -> None:
    title, *lines = str(ExplainedPlan(PLAN, DecisionLog())).splitlines()
    assert title.startswith("Plan before it runs.")
    assert lines == [
        "  return rows",
        "    aggregate by c_name",
        "      shuffled by c_name: orders join customer on o_custkey",
        "        shuffled by o_custkey: orders, 2 tasks: 2 files of 20.0 MiB",
        "        broadcast: customer, 1 task: 1 file of 1.0 MiB",
        "    to one task: sort by o_date, 4 tasks: set by the user",
        "      aggregate by o_date",
        "        shuffled by o_date: orders join customer on o_custkey (see above)",
    ]
    assert not INTERNAL_TERMS.search("\n".join(lines))


def test_a_plan_converts_to_a_dict() -> None:
    first, *_, last = ExplainedPlan(PLAN, DecisionLog()).as_dict()["nodes"]
    assert (first["name"], first["label"], first["parallelism"]) == ("Name1", "orders", 2)
    assert last["inputs"] == [
        {"source": 5, "partitioner": "HASH(none#1)"},
        {"source": 7, "partitioner": "HASH(none#1)"},
    ]
