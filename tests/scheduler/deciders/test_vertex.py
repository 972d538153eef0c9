"""The decider of vertices: figures in; tasks, reads and reasons out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.connectors.core.base import SinkParallelism
from penstock.connectors.core.coordinator import NOT_INFERRED
from penstock.decisions.log import Choice, DecisionKind, NodeRef
from penstock.execution.context import CoalescedRead, SlicedRead, UnchangedRead
from penstock.graph import (
    AggregateOperator,
    Operator,
    OperatorKind,
    SinkOperator,
    StreamEdgeUpdateRequest,
    StreamNodeUpdateRequest,
    WindowOperator,
)
from penstock.optimizer.skew import LARGEST_FIGURE
from tests.scheduler.deciders.cases import VOLUME, Deciding
from tests.scheduler.results import written

EVEN = written(*[40] * 8)


def test_tasks_read_ranges_of_about_the_volume() -> None:
    decided = Deciding("1 #> 2", results={1: EVEN}).decide(2)
    assert (decided.parallelism, decided.bytes_in) == (4, 320)
    assert decided.setup.read_of("1-2") == CoalescedRead([(0, 2), (2, 4), (4, 6), (6, 8)])
    assert decided.reason == "320 B of input, 100 B per task"


@pytest.mark.parametrize(
    ("config", "parallelism"),
    [
        ({}, 4),
        ({VOLUME: "1 kb"}, 1),
        ({"execution.batch.adaptive.auto-parallelism.max-parallelism": 2}, 2),
        ({"execution.batch.adaptive.auto-parallelism.min-parallelism": 6}, 8),
        ({"execution.batch.adaptive.auto-parallelism.enabled": False, "parallelism.default": 3}, 3),
    ],
)
def test_options(config: Any, parallelism: int) -> None:
    assert Deciding("1 #> 2", results={1: EVEN}, config=config).decide(2).parallelism == parallelism


def test_a_number_for_all_steps_applies_up_to_the_maximum_of_a_step() -> None:
    config = {"execution.batch.adaptive.auto-parallelism.enabled": False, "parallelism.default": 6}
    job = Deciding("1 #> 2", results={1: EVEN}, config=config)
    assert job.manager.stream_graph_context.modify_stream_node([StreamNodeUpdateRequest(2, max_parallelism=3)])
    decided = job.decide(2)
    assert (decided.parallelism, decided.reason) == (3, "parallelism is set to 3, the maximum of this step")


def test_the_maximum_of_a_step_is_not_the_reason_for_a_single_task() -> None:
    config = {"execution.batch.adaptive.auto-parallelism.enabled": False, "parallelism.default": 6}
    job = Deciding("1 1> 2", results={1: EVEN}, config=config)
    assert job.manager.stream_graph_context.modify_stream_node([StreamNodeUpdateRequest(2, max_parallelism=3)])
    decided = job.decide(2)
    assert (decided.parallelism, decided.reason) == (1, "all its rows go to one task")


MAXIMUM = "execution.batch.adaptive.auto-parallelism.max-parallelism"
MINIMUM = "execution.batch.adaptive.auto-parallelism.min-parallelism"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({MAXIMUM: 2}, f"limited by the maximum parallelism 2 ({MAXIMUM})"),
        ({"parallelism.default": 2}, "limited by the maximum parallelism 2 (parallelism.default)"),
        ({VOLUME: "1 b"}, "limited by the maximum parallelism 128 (Penstock's default)"),
        ({MINIMUM: 6}, f"raised to the minimum parallelism 6 ({MINIMUM})"),
        ({VOLUME: "1 b", MINIMUM: 130}, f"limited by the maximum parallelism 130 ({MINIMUM})"),
    ],
)
def test_a_reason_names_the_option_that_sets_a_bound(config: Any, reason: str) -> None:
    many = written(*[40] * 200) if VOLUME in config else EVEN
    assert reason in Deciding("1 #> 2", results={1: many}, config=config).decide(2).reason


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"execution.batch.adaptive.auto-parallelism.enabled": False, "parallelism.default": 3},
        {MINIMUM: 6},
    ],
)
def test_a_global_exchange_is_read_by_a_single_task(config: Any) -> None:
    decided = Deciding("1 1> 2", results={1: written(40)}, config=config).decide(2)
    assert (decided.parallelism, decided.reason) == (1, "all its rows go to one task")
    assert decided.setup.read_of("1-2") == CoalescedRead([(0, 1)])


def test_a_user_defined_parallelism_is_applied() -> None:
    decided = Deciding("1 #> 2", results={1: EVEN}, parallelism={2: 3}).decide(2)
    assert (decided.parallelism, decided.reason) == (3, "parallelism is set to 3")


def test_inputs_of_a_union_use_their_own_parallelism() -> None:
    union = {5: Operator(OperatorKind.UNION)}
    job = Deciding("1 #> 3\n2 #> 4\n3 -> 5\n4 -> 5", union, results={1: EVEN, 2: EVEN}, parallelism={3: 3, 4: 5})
    decided = job.decide(5)
    assert decided.parallelism == 3 + 5
    assert [len(decided.setup.read_of(edge).ranges) for edge in ("1-3", "2-4")] == [3, 5]


def test_parallelism_of_several_sources_in_a_vertex_adds_up() -> None:
    """A task of Spark's union reads a single input."""
    job = Deciding("1 -> 3\n2 -> 3", {3: Operator(OperatorKind.UNION)}, sources={1: 1000, 2: 1000})
    for node_id, static in {1: 3, 2: 5}.items():
        job.plan.sources[node_id] = replace(job.plan.sources[node_id], static_parallelism=static)
    decided = job.decide(3, {1: NOT_INFERRED, 2: NOT_INFERRED})
    assert decided.parallelism == 3 + 5
    assert decided.reason == "range: fixed by the connector at 3; range: fixed by the connector at 5"


@pytest.mark.parametrize(("arrow", "expected"), [("*>", 3), ("#>", 3 + 4)])
def test_a_source_beside_an_input(arrow: str, expected: int) -> None:
    """A broadcast has no tasks of its own, so only the source has; beside an exchange, the numbers add up."""
    union = {4: Operator(OperatorKind.UNION)}
    job = Deciding(f"1 {arrow} 3\n3 -> 4\n2 -> 4", union, results={1: EVEN}, sources={2: 1000})
    job.plan.sources[2] = replace(job.plan.sources[2], static_parallelism=3)
    assert job.decide(4, {2: NOT_INFERRED}).parallelism == expected


def test_inputs_of_an_exchange_group_have_the_same_ranges() -> None:
    job = Deciding("1 #> 3\n2 #> 3", results={1: EVEN, 2: EVEN}, groups={"1-3": 1, "2-3": 1})
    decided = job.decide(3)
    assert decided.setup.read_of("1-3") == decided.setup.read_of("2-3")
    assert (decided.parallelism, decided.bytes_in) == (8, 640)


def test_tasks_of_two_exchange_groups_add_up() -> None:
    decided = Deciding("1 #> 3\n2 #> 3", results={1: EVEN, 2: written(*[90] * 8)}).decide(3)
    assert decided.parallelism == 4 + 8


def test_a_skewed_subpartition_is_split_if_the_edge_allows_it() -> None:
    job = Deciding(
        "1 #> 2",
        results={1: written(40, 40, 4000, 40, tasks=8)},
        config={"table.optimizer.skewed-join-optimization.skewed-threshold": "1 b"},
    )
    before = job.manager.stream_graph_context
    assert before.modify_stream_edge([StreamEdgeUpdateRequest("1-2", intra_input_correlated=False)])
    read = job.decide(2).setup.read_of("1-2")
    assert isinstance(read, SlicedRead)
    assert [piece for task in read.tasks for piece in task if piece.mappers is not None]


@pytest.mark.parametrize(
    ("config", "merged"),
    [
        ({}, {2: [(0, 4), (4, 8), (8, 12), (12, 16)]}),
        ({MAXIMUM: 2}, {2: [(0, 8), (8, 16)]}),
        ({MAXIMUM: 1}, {}),
    ],
)
def test_hot_groups_are_merged_in_chunks_if_the_edge_allows_it(config: Any, merged: Any) -> None:
    job = Deciding(
        "1 #> 2",
        {2: AggregateOperator("it collects every value", keeps_values=True)},
        results={1: written(40, 40, 4000, 40, tasks=16)},
        config={"table.optimizer.skewed-join-optimization.skewed-threshold": "1 b", **config},
    )
    before = job.manager.stream_graph_context
    assert before.modify_stream_edge([StreamEdgeUpdateRequest("1-2", intra_input_correlated=False)])
    recorded = job.log.record(
        Choice(DecisionKind.SKEW, NodeRef(2, "n2"), "merged in pieces", "it is hot", {LARGEST_FIGURE: 4000})
    )
    read = job.decide(2).setup.read_of("1-2")
    assert isinstance(read, CoalescedRead)
    assert read.merge_ranges == merged
    assert read.ranges == ([(0, 4)] if MAXIMUM in config and config[MAXIMUM] == 1 else read.ranges)
    (settled,) = job.log.of(recorded.nodes, DecisionKind.SKEW)
    assert ("because" in settled.outcome) is not bool(merged)


def test_partial_results_are_not_split_together_with_the_rows_of_a_window() -> None:
    """A window and an aggregate of a step read the same ranges, but a group of the aggregate needs a single task."""
    job = Deciding(
        "1 #> 4\n2 #> 5\n4 -> 6\n5 -> 6",
        {4: Operator(OperatorKind.WINDOW), 5: AggregateOperator("it collects every value", keeps_values=True)},
        results={1: written(40, 40, 40, 40), 2: written(40, 40, 4000, 40, tasks=16)},
        groups={"1-4": 1, "2-5": 1},
        config={"table.optimizer.skewed-join-optimization.skewed-threshold": "1 b"},
    )
    before = job.manager.stream_graph_context
    assert before.modify_stream_edge([StreamEdgeUpdateRequest("2-5", intra_input_correlated=False)])
    setup = job.decide(6).setup
    window, partial = setup.read_of("1-4"), setup.read_of("2-5")
    assert isinstance(window, CoalescedRead)
    assert isinstance(partial, CoalescedRead)
    assert window.ranges == partial.ranges
    assert not window.merge_ranges
    assert list(partial.merge_ranges) == [2]


@pytest.mark.parametrize("hot", [Operator(OperatorKind.REPARTITION), WindowOperator()], ids=["rows", "a window"])
@pytest.mark.parametrize(
    "other",
    [
        None,
        WindowOperator(),
        AggregateOperator("sum"),
        AggregateOperator("it collects every value", keeps_values=True),
    ],
    ids=["alone", "a window", "an aggregate", "an aggregate that collects values"],
)
def test_rows_are_split_only_if_no_other_operator_reads_an_input_with_the_same_partitions(
    hot: Operator, other: Operator | None
) -> None:
    """Every task of a split would read the whole other input."""
    job = Deciding(
        "1 #> 4" if other is None else "1 #> 4\n2 #> 5\n4 -> 6\n5 -> 6",
        {4: hot} if other is None else {4: hot, 5: other},
        results={1: written(40, 40, 4000, 40, tasks=16), 2: written(40, 40, 40, 40)},
        groups={"1-4": 1} if other is None else {"1-4": 1, "2-5": 1},
        config={"table.optimizer.skewed-join-optimization.skewed-threshold": "1 b"},
    )
    before = job.manager.stream_graph_context
    assert before.modify_stream_edge([StreamEdgeUpdateRequest("1-4", intra_input_correlated=False)])
    skew = job.log.record(Choice(DecisionKind.SKEW, NodeRef(4, "n4"), "split", "it is hot", {LARGEST_FIGURE: 4000}))
    unlike = job.log.record(Choice(DecisionKind.SKEW, NodeRef(4, "n4"), "not split", "another input is small"))
    setup = job.decide(4 if other is None else 6).setup
    outcomes = {decision.id: decision.outcome for decision in job.log.of((4,), DecisionKind.SKEW)}
    assert not outcomes[unlike.id]
    if other is None:
        assert isinstance(setup.read_of("1-4"), SlicedRead)
        assert outcomes[skew.id] == {"split": 1}
    else:
        read, whole = setup.read_of("1-4"), setup.read_of("2-5")
        assert isinstance(read, CoalescedRead)
        assert isinstance(whole, CoalescedRead)
        assert read.ranges == whole.ranges
        assert outcomes[skew.id]["instead"] == "its partitions are not split"
        assert outcomes[skew.id]["because"] == "its step reads another input with the same partitions"


def test_broadcasts_are_read_whole() -> None:
    decided = Deciding("1 *> 3\n2 #> 3", results={1: EVEN, 2: EVEN}).decide(3)
    assert decided.setup.read_of("1-3") == UnchangedRead()
    assert decided.parallelism == 4


def test_spark_splits_a_source_that_infers_nothing() -> None:
    decided = Deciding("1 #> 2", sources={1: 1000}).decide(1, {1: NOT_INFERRED})
    assert (decided.parallelism, decided.reason, decided.bytes_in) == (None, "Spark splits this source itself", 1000)


SOURCES_DEFAULT = "execution.batch.adaptive.auto-parallelism.default-source-parallelism"
MAXIMUM = "execution.batch.adaptive.auto-parallelism.max-parallelism"


@pytest.mark.parametrize(
    ("config", "step", "expected"),
    [
        ({}, None, 128),
        ({SOURCES_DEFAULT: 5}, None, 5),
        ({SOURCES_DEFAULT: 5}, 300, 5),
        ({SOURCES_DEFAULT: 5}, 3, 3),
        ({MAXIMUM: 6}, 300, 6),
        ({MAXIMUM: 6, SOURCES_DEFAULT: 8}, None, 6),
        ({MAXIMUM: 6, SOURCES_DEFAULT: 8}, 300, 8),
        ({MAXIMUM: 6, SOURCES_DEFAULT: 8}, 7, 7),
        ({MAXIMUM: 6, "scan.infer-parallelism.max": 9}, None, 6),
        ({"parallelism.default": 4, SOURCES_DEFAULT: 5}, None, 5),
    ],
)
def test_bounds_limit_the_inferred_parallelism_of_a_source(config: Any, step: int | None, expected: int) -> None:
    job = Deciding("1 #> 2", sources={1: 1000}, config=config)
    (vertex,) = job.manager.job_graph
    decided = job._decider.decide(replace(vertex, max_parallelism=step), {1: 700})
    assert decided.parallelism == expected
    assert decided.reason.startswith("the source asks for 700 tasks, but")


@pytest.mark.parametrize(
    ("sources", "expected"),
    [({1: 1000}, 40), ({1: 10}, 4), ({1: 100_000}, 128)],  # four for each task, at least four, at most the maximum
)
def test_subpartitions_follow_the_estimated_input(sources: Any, expected: int) -> None:
    job = Deciding("1 #> 2", sources=sources)
    assert job.decide(1, {1: NOT_INFERRED}).setup.subpartitions == expected
    (decision,) = [decision for decision in job.log if decision.kind is DecisionKind.SUBPARTITIONS]
    assert decision.chosen == expected
    assert decision.reason.endswith(", at most 128 (Penstock's default)") is (expected == 128)


@pytest.mark.parametrize(
    ("sources", "number", "size"),
    [
        ({1: 300, 2: 200}, 20, "500 B of input"),
        ({1: None, 2: 200}, 8, "at least 200 B of input"),
        ({1: None, 2: None}, 4, "input of unknown size"),
    ],
)
def test_a_size_that_no_source_reports_is_unknown(sources: Any, number: int, size: str) -> None:
    job = Deciding("1 #> 3\n2 #> 3", sources=sources, groups={"1-3": 1, "2-3": 1})
    assert job.decide(1, {1: NOT_INFERRED}).bytes_in == sources[1]
    (decision,) = [decision for decision in job.log if decision.kind is DecisionKind.SUBPARTITIONS]
    sentence = f"{number} partitions if rows are shuffled for n3, to divide {size}; tasks read several partitions if these are small"  # they may be broadcast instead
    assert decision.displayed.sentence == sentence
    assert decision.reason == f"{size} to n3, four subpartitions for each 100 B (Penstock's default)"
    assert decision.figures.get("known bytes") == (sum(filter(None, sources.values())) or None)
    (tasks,) = [decision for decision in job.log if decision.kind is DecisionKind.SOURCE_PARALLELISM]
    assert tasks.figures.get("bytes in") == sources[1]


def test_a_broadcast_side_is_no_input_of_an_exchange_behind_the_join() -> None:
    job = Deciding("1 -> 3\n2 *> 3\n3 #> 4", sources={1: 1000, 2: 500}, results={2: EVEN})
    assert job.decide(3, {1: NOT_INFERRED}).setup.subpartitions == 40  # four for each 100 B of the 1,000 B of node 1


@pytest.mark.parametrize(
    ("edges", "options", "expected"),
    [
        ("1 #> 2", {}, 320),
        ("1 #> 2", {"parallelism": {2: 3}}, None),
        ("1 #> 2", {"config": {"execution.batch.adaptive.auto-parallelism.enabled": False}}, None),
        ("1 1> 2", {}, None),
    ],
)
def test_a_shuffle_with_the_partitions_of_plain_spark_is_recorded(
    edges: str, options: dict[str, Any], expected: int | None
) -> None:
    job = Deciding(edges, results={1: EVEN}, **options)
    job.decide(2)
    (decision,) = [decision for decision in job.log if decision.kind is DecisionKind.VERTEX_PARALLELISM]
    assert decision.figures.get("bytes shuffled") == expected


def test_a_decision_names_the_operators_of_the_vertex() -> None:
    job = Deciding("1 #> 2\n2 -> 3", results={1: EVEN})
    job.decide(3)
    (decision,) = [decision for decision in job.log if decision.kind is DecisionKind.VERTEX_PARALLELISM]
    assert (decision.nodes, decision.chosen) == ((2, 3), 4)


MEASURED: dict[str, tuple[int | None, dict[str, Any], int, str]] = {
    "the measured number": (5, {}, 5, "it was measured"),
    "at most the maximum": (7, {MAXIMUM: 3}, 3, f"7 would pay off, but at most 3 are possible ({MAXIMUM})"),
    "at most the subpartitions": (9, {}, 8, "9 would pay off, but at most 8"),
    "at least the minimum": (2, {MINIMUM: 6}, 6, "the minimum is 6"),
    "by its bytes if nothing was measured": (None, {}, 4, "320 B of input, 100 B per task"),
    "auto parallelism is off": (
        5,
        {"execution.batch.adaptive.auto-parallelism.enabled": False, "parallelism.default": 3},
        3,
        "parallelism is set to 3",
    ),
}


@pytest.mark.parametrize("case", MEASURED)
def test_a_trial_write_decides_the_tasks_of_a_sink(case: str) -> None:
    worth, config, tasks, reason = MEASURED[case]
    job = Deciding("1 #> 2", {2: SinkOperator(measures_tasks=True)}, results={1: EVEN}, config=config)
    job.results.worth = None if worth is None else SinkParallelism(worth, "it was measured")
    decided = job.decide(2)
    assert decided.parallelism == tasks
    assert reason in decided.reason
    read = decided.setup.read_of("1-2")
    assert isinstance(read, CoalescedRead)
    assert (read.ranges[0][0], read.ranges[-1][1]) == (0, 8)


def test_a_user_defined_parallelism_overrides_the_trial_write_of_a_sink() -> None:
    job = Deciding("1 #> 2", {2: SinkOperator(measures_tasks=True)}, results={1: EVEN}, parallelism={2: 3})
    job.results.worth = SinkParallelism(7, "it was measured")
    decided = job.decide(2)
    assert (decided.parallelism, decided.reason) == (3, "parallelism is set to 3")


def test_enough_subpartitions_are_written_for_a_sink_that_measures_its_tasks() -> None:
    job = Deciding("1 #> 2", {2: SinkOperator(measures_tasks=True)}, sources={1: 10})
    assert job.decide(1, {1: NOT_INFERRED}).setup.subpartitions == 128
