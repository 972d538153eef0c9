"""A vertex is decided from what lies before it: figures in, tasks, reads and reasons out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.connectors.base import TasksWorth
from penstock.connectors.coordinator import NO_ANSWER
from penstock.decisions import Choice, DecisionKind, NodeRef
from penstock.execution.reads import CoalescedRead, SlicedRead, WholeRead
from penstock.graph import (
    AggregateOperator,
    Operator,
    OperatorKind,
    SinkOperator,
    StreamEdgeUpdateRequest,
    StreamNodeUpdateRequest,
    WindowOperator,
)
from penstock.optimizer.skew import LARGEST
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


def test_a_number_for_all_steps_holds_up_to_the_step_s_maximum() -> None:
    config = {"execution.batch.adaptive.auto-parallelism.enabled": False, "parallelism.default": 6}
    job = Deciding("1 #> 2", results={1: EVEN}, config=config)
    assert job.manager.stream_graph_context.modify_stream_node([StreamNodeUpdateRequest(2, max_parallelism=3)])
    decided = job.decide(2)
    assert (decided.parallelism, decided.reason) == (3, "parallelism is set to 3, the most tasks of this step")


def test_rows_that_go_to_one_task_are_not_there_because_of_the_step_s_maximum() -> None:
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
def test_a_bound_is_named_by_what_sets_it(config: Any, reason: str) -> None:
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
def test_what_goes_to_one_task_is_read_by_one(config: Any) -> None:
    decided = Deciding("1 1> 2", results={1: written(40)}, config=config).decide(2)
    assert (decided.parallelism, decided.reason) == (1, "all its rows go to one task")
    assert decided.setup.read_of("1-2") == CoalescedRead([(0, 1)])


def test_what_the_user_gave_is_kept() -> None:
    decided = Deciding("1 #> 2", results={1: EVEN}, parallelism={2: 3}).decide(2)
    assert (decided.parallelism, decided.reason) == (3, "parallelism is set to 3")


def test_each_input_of_a_union_keeps_what_was_given_to_it() -> None:
    union = {5: Operator(OperatorKind.UNION)}
    job = Deciding("1 #> 3\n2 #> 4\n3 -> 5\n4 -> 5", union, results={1: EVEN, 2: EVEN}, parallelism={3: 3, 4: 5})
    decided = job.decide(5)
    assert decided.parallelism == 3 + 5
    assert [len(decided.setup.read_of(edge).ranges) for edge in ("1-3", "2-4")] == [3, 5]


def test_sources_that_meet_in_a_vertex_add_up() -> None:
    """A task of Spark's reads one input, so the larger number would leave rows unread."""
    job = Deciding("1 -> 3\n2 -> 3", {3: Operator(OperatorKind.UNION)}, sources={1: 1000, 2: 1000})
    for node_id, static in {1: 3, 2: 5}.items():
        job.plan.sources[node_id] = replace(job.plan.sources[node_id], static=static)
    decided = job.decide(3, {1: NO_ANSWER, 2: NO_ANSWER})
    assert decided.parallelism == 3 + 5
    assert decided.reason == "range: fixed by the connector at 3; range: fixed by the connector at 5"


@pytest.mark.parametrize(("arrow", "expected"), [("*>", 3), ("#>", 3 + 4)])
def test_a_source_beside_an_input(arrow: str, expected: int) -> None:
    """Its number counts beside a broadcast, which has no tasks of its own; beside an exchange, the numbers add up."""
    union = {4: Operator(OperatorKind.UNION)}
    job = Deciding(f"1 {arrow} 3\n3 -> 4\n2 -> 4", union, results={1: EVEN}, sources={2: 1000})
    job.plan.sources[2] = replace(job.plan.sources[2], static=3)
    assert job.decide(4, {2: NO_ANSWER}).parallelism == expected


def test_inputs_of_one_group_are_cut_alike() -> None:
    job = Deciding("1 #> 3\n2 #> 3", results={1: EVEN, 2: EVEN}, groups={"1-3": 1, "2-3": 1})
    decided = job.decide(3)
    assert decided.setup.read_of("1-3") == decided.setup.read_of("2-3")
    assert (decided.parallelism, decided.bytes_in) == (8, 640)


def test_inputs_of_two_groups_add_up() -> None:
    decided = Deciding("1 #> 3\n2 #> 3", results={1: EVEN, 2: written(*[90] * 8)}).decide(3)
    assert decided.parallelism == 4 + 8


def test_a_skewed_subpartition_is_split_where_that_was_allowed() -> None:
    job = Deciding(
        "1 #> 2",
        results={1: written(40, 40, 4000, 40, tasks=8)},
        config={"table.optimizer.skewed-join-optimization.skewed-threshold": "1 b"},
    )
    before = job.manager.stream_graph_context
    assert before.modify_stream_edge([StreamEdgeUpdateRequest("1-2", intra_input_correlated=False)])
    read = job.decide(2).setup.read_of("1-2")
    assert isinstance(read, SlicedRead)
    assert [one for task in read.tasks for one in task if one.mappers is not None]


@pytest.mark.parametrize(
    ("config", "merged"),
    [
        ({}, {2: [(0, 4), (4, 8), (8, 12), (12, 16)]}),
        ({MAXIMUM: 2}, {2: [(0, 8), (8, 16)]}),
        ({MAXIMUM: 1}, {}),
    ],
)
def test_partial_results_of_a_hot_subpartition_are_merged_in_pieces_where_that_was_allowed(
    config: Any, merged: Any
) -> None:
    job = Deciding(
        "1 #> 2",
        {2: AggregateOperator("it keeps every value", keeps_values=True)},
        results={1: written(40, 40, 4000, 40, tasks=16)},
        config={"table.optimizer.skewed-join-optimization.skewed-threshold": "1 b", **config},
    )
    before = job.manager.stream_graph_context
    assert before.modify_stream_edge([StreamEdgeUpdateRequest("1-2", intra_input_correlated=False)])
    noted = job.log.record(
        Choice(DecisionKind.SKEW, NodeRef(2, "n2"), "merged in pieces", "it is hot", {LARGEST: 4000})
    )
    read = job.decide(2).setup.read_of("1-2")
    assert isinstance(read, CoalescedRead)
    assert read.merged == merged
    assert read.ranges == ([(0, 4)] if MAXIMUM in config and config[MAXIMUM] == 1 else read.ranges)
    (settled,) = job.log.of(noted.nodes, DecisionKind.SKEW)
    assert ("because" in settled.outcome) is not bool(merged)


def test_partial_results_are_not_split_like_the_rows_of_an_operator_before_them() -> None:
    """A window and an aggregate of one step read alike; a group of the aggregate must be in one task, once."""
    job = Deciding(
        "1 #> 4\n2 #> 5\n4 -> 6\n5 -> 6",
        {4: Operator(OperatorKind.WINDOW), 5: AggregateOperator("it keeps every value", keeps_values=True)},
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
    assert not window.merged
    assert list(partial.merged) == [2]


@pytest.mark.parametrize("hot", [Operator(OperatorKind.REPARTITION), WindowOperator()], ids=["rows", "a window"])
@pytest.mark.parametrize(
    "other",
    [
        None,
        WindowOperator(),
        AggregateOperator("sum"),
        AggregateOperator("it keeps every value", keeps_values=True),
    ],
    ids=["alone", "a window", "an aggregate", "an aggregate that keeps values"],
)
def test_rows_are_split_only_where_no_other_operator_reads_an_input_by_the_same_partitions(
    hot: Operator, other: Operator | None
) -> None:
    """All tasks of a split would read the other input, each of them whole."""
    job = Deciding(
        "1 #> 4" if other is None else "1 #> 4\n2 #> 5\n4 -> 6\n5 -> 6",
        {4: hot} if other is None else {4: hot, 5: other},
        results={1: written(40, 40, 4000, 40, tasks=16), 2: written(40, 40, 40, 40)},
        groups={"1-4": 1} if other is None else {"1-4": 1, "2-5": 1},
        config={"table.optimizer.skewed-join-optimization.skewed-threshold": "1 b"},
    )
    before = job.manager.stream_graph_context
    assert before.modify_stream_edge([StreamEdgeUpdateRequest("1-4", intra_input_correlated=False)])
    told = job.log.record(Choice(DecisionKind.SKEW, NodeRef(4, "n4"), "split", "it is hot", {LARGEST: 4000}))
    unlike = job.log.record(Choice(DecisionKind.SKEW, NodeRef(4, "n4"), "not split", "another input is small"))
    setup = job.decide(4 if other is None else 6).setup
    outcomes = {one.id: one.outcome for one in job.log.of((4,), DecisionKind.SKEW)}
    assert not outcomes[unlike.id]
    if other is None:
        assert isinstance(setup.read_of("1-4"), SlicedRead)
        assert outcomes[told.id] == {"split": 1}
    else:
        read, whole = setup.read_of("1-4"), setup.read_of("2-5")
        assert isinstance(read, CoalescedRead)
        assert isinstance(whole, CoalescedRead)
        assert read.ranges == whole.ranges
        assert outcomes[told.id]["instead"] == "its partitions are not split"
        assert outcomes[told.id]["because"] == "its step reads another input by the same partitions"


def test_what_is_broadcast_is_read_whole() -> None:
    decided = Deciding("1 *> 3\n2 #> 3", results={1: EVEN, 2: EVEN}).decide(3)
    assert decided.setup.read_of("1-3") == WholeRead()
    assert decided.parallelism == 4


def test_sources_are_cut_as_they_were_asked() -> None:
    decided = Deciding("1 #> 2", sources={1: 1000}).decide(1, {1: NO_ANSWER})
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
def test_bounds_of_a_source_that_ignores_them(config: Any, step: int | None, expected: int) -> None:
    job = Deciding("1 #> 2", sources={1: 1000}, config=config)
    (vertex,) = job.manager.job_graph
    decided = job._decider.decide(replace(vertex, max_parallelism=step), {1: 700})
    assert decided.parallelism == expected
    assert decided.reason.startswith("the source asks for 700 tasks, but")


@pytest.mark.parametrize(
    ("sources", "expected"),
    [({1: 1000}, 40), ({1: 10}, 4), ({1: 100_000}, 128)],  # four for each task, at least four, at most the maximum
)
def test_what_is_written_follows_what_is_known_before(sources: Any, expected: int) -> None:
    job = Deciding("1 #> 2", sources=sources)
    assert job.decide(1, {1: NO_ANSWER}).setup.subpartitions == expected
    (decision,) = [one for one in job.log if one.kind is DecisionKind.SUBPARTITIONS]
    assert decision.chosen == expected
    assert decision.reason.endswith(", at most 128 (Penstock's default)") is (expected == 128)


@pytest.mark.parametrize(
    ("sources", "number", "known"),
    [
        ({1: 300, 2: 200}, 20, "500 B of input"),
        ({1: None, 2: 200}, 8, "at least 200 B of input"),
        ({1: None, 2: None}, 4, "input of unknown size"),
    ],
)
def test_a_size_that_no_source_tells_is_unknown(sources: Any, number: int, known: str) -> None:
    job = Deciding("1 #> 3\n2 #> 3", sources=sources, groups={"1-3": 1, "2-3": 1})
    assert job.decide(1, {1: NO_ANSWER}).bytes_in == sources[1]
    (decision,) = [one for one in job.log if one.kind is DecisionKind.SUBPARTITIONS]
    assert decision.words.sentence == (
        f"{number} partitions if rows are shuffled for n3, as they would come from {known}"
    ), "a broadcast may come instead"
    assert decision.reason == f"{known} to n3, four subpartitions for each 100 B (Penstock's default)"
    assert decision.figures.get("known bytes") == (sum(filter(None, sources.values())) or None)
    (tasks,) = [one for one in job.log if one.kind is DecisionKind.SOURCE_PARALLELISM]
    assert tasks.figures.get("bytes in") == sources[1]


def test_a_broadcast_side_is_no_input_of_an_exchange_behind_the_join() -> None:
    job = Deciding("1 -> 3\n2 *> 3\n3 #> 4", sources={1: 1000, 2: 500}, results={2: EVEN})
    assert job.decide(3, {1: NO_ANSWER}).setup.subpartitions == 40  # four for each 100 B of the 1,000 B of node 1


def test_a_decision_names_the_operators_of_the_vertex() -> None:
    job = Deciding("1 #> 2\n2 -> 3", results={1: EVEN})
    job.decide(3)
    (decision,) = [one for one in job.log if one.kind is DecisionKind.VERTEX_PARALLELISM]
    assert (decision.nodes, decision.chosen) == ((2, 3), 4)


MEASURED: dict[str, tuple[int | None, dict[str, Any], int, str]] = {
    "as many as it is worth": (5, {}, 5, "it was measured"),
    "no more than the maximum": (7, {MAXIMUM: 3}, 3, f"7 would be worth it, but at most 3 can be had ({MAXIMUM})"),
    "no more than there are subpartitions": (9, {}, 8, "9 would be worth it, but at most 8"),
    "no fewer than the minimum": (2, {MINIMUM: 6}, 6, "at least 6 are asked for"),
    "by its bytes where nothing was measured": (None, {}, 4, "320 B of input, 100 B per task"),
    "auto parallelism is off": (
        5,
        {"execution.batch.adaptive.auto-parallelism.enabled": False, "parallelism.default": 3},
        3,
        "parallelism is set to 3",
    ),
}


@pytest.mark.parametrize("case", MEASURED)
def test_a_sink_that_tries_its_first_rows(case: str) -> None:
    worth, config, tasks, words = MEASURED[case]
    job = Deciding("1 #> 2", {2: SinkOperator(measures_tasks=True)}, results={1: EVEN}, config=config)
    job.results.worth = None if worth is None else TasksWorth(worth, "it was measured")
    decided = job.decide(2)
    assert decided.parallelism == tasks
    assert words in decided.reason
    read = decided.setup.read_of("1-2")
    assert isinstance(read, CoalescedRead)
    assert (read.ranges[0][0], read.ranges[-1][1]) == (0, 8)


def test_the_users_number_goes_before_what_a_sink_would_measure() -> None:
    job = Deciding("1 #> 2", {2: SinkOperator(measures_tasks=True)}, results={1: EVEN}, parallelism={2: 3})
    job.results.worth = TasksWorth(7, "it was measured")
    decided = job.decide(2)
    assert (decided.parallelism, decided.reason) == (3, "parallelism is set to 3")


def test_before_a_sink_that_is_measured_there_is_room_for_many_tasks() -> None:
    job = Deciding("1 #> 2", {2: SinkOperator(measures_tasks=True)}, sources={1: 10})
    assert job.decide(1, {1: NO_ANSWER}).setup.subpartitions == 128
