"""Each check: which applications have a finding, and how many seconds are lost."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.doctor.checks import (
    broadcast,
    driver,
    failures,
    garbage,
    parallelism,
    product,
    recomputation,
    single_task,
    skew,
    small_files,
    spill,
)
from penstock.doctor.finding import Finding, Kind
from penstock.doctor.records import MAX_TEXT, Application, PlanNode, Stage
from penstock.doctor.timeline import Timeline
from tests.doctor.applications import LINE, MIB, application, node, query, stage, task


def findings(check: Any, app: Application) -> list[Finding]:
    return [finding for finding in check.check(app, Timeline.of(app)) if finding.seconds > 0]


def seconds(check: Any, app: Application) -> float:
    """Return the lost seconds, 0 without a finding."""
    return round(sum(finding.seconds for finding in findings(check, app)), 3)


@pytest.mark.parametrize(
    ("durations", "other_stage", "lost"),
    [
        ([1, 1, 1, 9], [], 6.0),  # 8 s with a single busy core of four
        ([1, 1, 1, 9, 9], [], 4.0),
        ([1, 1, 1, 1.5], [], 0),  # not three times the median
        ([1, 9], [], 0),  # two tasks have no median to compare with
        ([1, 1, 1, 9], [(1, 9)] * 3, 0.0),  # other stages use the cores
        ([1, 1, 1, 9], [(1, 5)] * 3, 3.0),
    ],
)
def test_skew_counts_idle_cores_while_slow_tasks_run(durations: Any, other_stage: Any, lost: float) -> None:
    stages = [stage(0, [task(0, end, rows=1) for end in durations])]
    if other_stage:
        stages.append(stage(1, [task(start, end, rows=1) for start, end in other_stage]))
    assert seconds(skew, application(stages)) == lost


@pytest.mark.parametrize(
    ("lengths", "lost"),
    [
        ([9, 9, 9, 9, 9], 0),  # equal tasks that occupy all cores
        ([9, 9, 9, 9, 18], 13.5),
        ([9, 9, 9], 2.25),
    ],
)
def test_equal_slow_tasks_are_no_skew(lengths: list[float], lost: float) -> None:
    """The slow tasks start after 1 s, the fifth when the others have ended."""
    slow = [task(1, 1 + end, rows=1) for end in lengths[:4]] + [task(10, 10 + end, rows=1) for end in lengths[4:]]
    assert seconds(skew, application([stage(0, [task(0, 1, rows=1)] * 20 + slow)])) == lost


def test_a_slow_task_after_slow_starts_is_skew() -> None:
    """The first tasks start Python workers."""
    rows = [task(0, 9, rows=1)] * 4 + [task(9, 10, rows=1)] * 20 + [task(10, 19, rows=1)]
    assert seconds(skew, application([stage(0, rows)])) == 6.75


def test_empty_partitions_are_not_the_median_of_skew() -> None:
    rows = [task(0, 0.1)] * 170 + [task(0, 5, rows=100, shuffle_bytes=MIB)] * 30
    assert seconds(skew, application([stage(0, rows)], cores=64)) == 0


@pytest.mark.parametrize(
    ("running", "texts", "lost"),
    [
        ([0.0], ("took 9.0 s", "no end of 1 task, up to 9.0 s"), 6.0),
        ([8.5], (), 0),  # it has just started
    ],
)
def test_skew_of_tasks_without_an_end(running: list[float], texts: Any, lost: float) -> None:
    unfinished = stage(0, [task(0, 1, rows=1, shuffle_bytes=MIB)] * 3, running=running)
    app = application([unfinished], last_event=9.0)
    assert seconds(skew, app) == lost
    assert all(text in finding.problem for finding in findings(skew, app) for text in texts)
    assert all("It read" not in finding.problem for finding in findings(skew, app))


@pytest.mark.parametrize(
    ("figures", "nodes", "remedy"),
    [
        ({"input_bytes": 100 * MIB}, [node("Scan csv ")], "cannot split some files"),
        ({"input_bytes": 100 * MIB}, [node("InMemoryTableScan")], "frequent key"),
        ({"shuffle_bytes": 100 * MIB}, [], "frequent key"),
    ],
)
def test_remedies_of_skew(figures: Any, nodes: Any, remedy: str) -> None:
    rows = [task(0, 1, rows=1)] * 3 + [task(0, 9, rows=1, **figures)]
    (finding,) = findings(skew, application([stage(0, rows, nodes)]))
    assert remedy in finding.remedy
    assert ("key" in finding.problem + finding.remedy) is (remedy == "frequent key")


@pytest.mark.parametrize(
    ("lengths", "kinds"),
    [
        ([1, 1, 9], ["skew"]),  # fewer tasks than cores, and a slow one
        ([9, 9, 9], ["parallelism"]),
    ],
)
def test_idle_cores_are_reported_once(lengths: list[float], kinds: list[str]) -> None:
    app = application([stage(0, [task(0, end, rows=9, shuffle_bytes=64 * MIB) for end in lengths])])
    assert [str(finding.kind) for check in (skew, parallelism) for finding in findings(check, app)] == kinds


@pytest.mark.parametrize(
    ("largest", "nodes", "texts"),
    [
        (400 * MIB, [], ("400.0 MiB instead of 1.0 MiB", "into 25 tasks")),
        (100 * MIB, [], ("100.0 MiB instead of 1.0 MiB", "above 256.0 MiB", "skewed-threshold")),
        (1 * MIB, [], ("about as much", "adaptive-partitioner.enabled")),
        (100 * MIB, [node("FlatMapGroupsInPandas")], ("100.0 MiB", "does not divide the groups of a Python function")),
    ],
)
def test_skew_says_what_penstock_decides(largest: int, nodes: Any, texts: Any) -> None:
    rows = [task(0, 1, rows=1, shuffle_bytes=MIB)] * 3 + [task(0, 9, rows=1, shuffle_bytes=largest)]
    (finding,) = findings(skew, application([stage(3, rows, nodes)]))
    assert (finding.kind, finding.line) == (Kind.SKEW, LINE)
    assert finding.subject.startswith("stage 3")
    for text in texts:
        assert text in finding.problem + finding.decision


@pytest.mark.parametrize(
    ("in_memory", "end", "lost"),
    [
        (0, 10, 0),
        (200e6, 10, 1.0),  # 4 s of a core, by four tasks at a time
        (200e6, 1, 0.125),  # at most half of the time of the task that spilled
    ],
)
def test_spill(in_memory: float, end: float, lost: float) -> None:
    rows = [task(0, end, spilled=in_memory / 3, spilled_memory=in_memory, shuffle_bytes=64 * MIB)]
    rows += [task(0, end, shuffle_bytes=MIB)] * 3
    app = application([stage(0, rows)])
    assert seconds(spill, app) == lost
    for finding in findings(spill, app):
        assert "1 task of 4 spilled 190.7 MiB" in finding.problem
        assert "5 tasks instead of 4" in finding.decision


@pytest.mark.parametrize(
    ("count", "size", "length", "lost"),
    [
        (400, 100, 0.04, 3.99),  # 399 tasks of 40 ms fixed costs on four cores
        (400, 100, 1.0, 0),  # long tasks
        (400, 8 * MIB, 0.04, 0),  # large tasks
        (32, 100, 0.04, 0),  # eight tasks per core
    ],
)
def test_many_tiny_tasks(count: int, size: int, length: float, lost: float) -> None:
    rows = [task(length * (i // 4), length * (i // 4 + 1), shuffle_bytes=size, rows=1) for i in range(count)]
    assert seconds(parallelism, application([stage(0, rows)])) == lost


PYTHON = [node("ArrowEvalPython")]
FEW_TASKS = [
    # rows of tasks with work, bytes of each, seconds, nodes, cores, lost seconds
    (2, 64 * MIB, 8, [], 4, 4.0),
    (2, 64 * MIB, 8, [], 2, 0),  # no idle core
    (2, MIB, 8, [], 4, 0),  # 2 MiB are a single task also for Penstock
    (2, MIB, 40, [], 4, 20.0),  # long tasks can be divided
    (2, MIB, 8, PYTHON, 4, 4.0),  # Python functions get all cores
    (2, 0, 8, [], 4, 4.0),  # the rows are known, the bytes are not
]


@pytest.mark.parametrize(("tasks", "size", "length", "nodes", "cores", "lost"), FEW_TASKS)
def test_fewer_tasks_than_cores(tasks: int, size: int, length: float, nodes: Any, cores: int, lost: float) -> None:
    rows = [task(0, length, shuffle_bytes=size, rows=100)] * tasks
    app = application([stage(0, rows, nodes)], cores=cores)
    assert seconds(parallelism, app) == lost
    assert seconds(single_task, app) == 0


@pytest.mark.parametrize(
    ("rows", "nodes", "lost", "remedy"),
    [
        ([task(0, 8, rows=100, shuffle_bytes=100 * MIB)], [node("Window")], 6.0, "PARTITION BY"),
        ([task(0, 8, rows=100, shuffle_bytes=MIB)], [node("FlatMapGroupsInPandas")], 6.0, "finer key"),
        ([task(0, 8, rows=100)], [node("ArrowEvalPython"), node("Coalesce")], 6.0, "coalesce()"),
        ([task(0, 8, rows=100, shuffle_bytes=100 * MIB), *[task(0, 0.1)] * 7], [], 5.825, "repartition()"),
        ([task(0, 8, rows=2, shuffle_bytes=100 * MIB)], [], 0, ""),  # two rows cannot be divided into four tasks
        ([task(0, 8, rows=100, shuffle_bytes=MIB)], [], 0, ""),
        ([task(0, 8)], [], 0, ""),  # nothing is known about its input
    ],
)
def test_a_single_task_with_rows(rows: Any, nodes: list[PlanNode], lost: float, remedy: str) -> None:
    app = application([stage(0, rows, nodes)])
    assert seconds(single_task, app) == lost
    assert all(remedy in finding.remedy for finding in findings(single_task, app))


JOIN_EXCHANGE = "Exchange hashpartitioning(key#1, 200), ENSURE_REQUIREMENTS, [plan_id=7]"
USER_EXCHANGE = "Exchange hashpartitioning(key#1, 200), REPARTITION_BY_COL, [plan_id=7]"


def shuffled_join(
    small: float,
    kind: str = "Inner",
    settings: Any = None,
    between: str = "Sort",
    exchange: str = JOIN_EXCHANGE,
    query_settings: Any = None,
) -> Application:
    sides = [
        node(
            between,
            node("Exchange", text=exchange, shuffle_bytes_written=number, data_size=number + 1),
            sort_time=number + 2,
        )
        for number in (10, 20)
    ]
    join = node("SortMergeJoin", *sides, text=f"SortMergeJoin [key#1], [key#2], {kind}")
    values = {10: 4e8, 11: 8e8, 12: 4000.0, 20: small, 21: 2 * small}
    rows = stage(0, [task(0, 10)] * 4, [sides[0].children[0]])
    return application([rows], [query(0, join, settings=query_settings or {})], values, settings=settings)


THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"


@pytest.mark.parametrize(
    ("app", "lost", "text"),
    [
        (shuffled_join(5e6), 3.0, "would have measured the small side first"),  # 8 s to serialize, 4 s to sort
        (shuffled_join(11e6), 0, ""),
        (shuffled_join(11e6, settings={THRESHOLD: "20MB"}), 3.0, "below 20.0 MiB"),
        (shuffled_join(5e6, settings={THRESHOLD: "-1"}), 3.0, "broadcasts nothing either"),
        (shuffled_join(5e6, "LeftOuter"), 3.0, ""),
        (shuffled_join(5e6, "RightOuter"), 0, ""),  # the small side cannot be broadcast
        (shuffled_join(5e6, "FullOuter"), 0, ""),
        (shuffled_join(5e6, between="Window"), 0, ""),  # the window needs the exchange
        (shuffled_join(5e6, exchange=USER_EXCHANGE), 0, ""),
        (shuffled_join(11e6, query_settings={THRESHOLD: "20MB"}), 3.0, "below 20.0 MiB"),
        (shuffled_join(11e6, settings={THRESHOLD: "20MB"}, query_settings={THRESHOLD: "10MB"}), 0, ""),
        (
            shuffled_join(5e6, settings={THRESHOLD: "20MB"}, query_settings={THRESHOLD: "-1"}),
            3.0,
            f"With {THRESHOLD} = -1",
        ),
    ],
)
def test_shuffled_joins_with_a_small_side(app: Application, lost: float, text: str) -> None:
    assert seconds(broadcast, app) == lost
    assert all(text in finding.decision for finding in findings(broadcast, app))


@pytest.mark.parametrize(("size", "lost"), [(100 * MIB, 3.0), (50 * MIB, 0)])
def test_large_broadcasts(size: float, lost: float) -> None:
    exchange = node("BroadcastExchange", data_size=1, time_to_build=2, time_to_broadcast=3)
    values = {1: float(size), 2: 2000.0, 3: 1000.0}
    app = application([stage(0, [task(0, 1)])], [query(0, node("BroadcastHashJoin", exchange))], values)
    assert seconds(broadcast, app) == lost


@pytest.mark.parametrize(
    ("files", "size", "scan", "lost"),
    [
        (1000, 10e6, 20.5, 5.0),  # half a second of 20.5 is reading, on four cores
        (1000, 10e6, 900.0, 24.975),  # at most 0.1 s per superfluous file
        (50, 1e6, 20.5, 0),
        (1000, 100e9, 20.5, 0),
    ],
)
def test_small_files(files: float, size: float, scan: float, lost: float) -> None:
    scan_node = node("Scan parquet", number_of_files_read=1, size_of_files_read=2, scan_time=3)
    values = {1: files, 2: size, 3: 1000 * scan}
    app = application([stage(0, [task(0, 6)] * 4, [scan_node])], [query(0, scan_node)], values)
    assert seconds(small_files, app) == lost


@pytest.mark.parametrize(
    ("nodes", "lost"),
    [
        ([], 1.248),  # 5 ms for each of 999 files, on four cores
        ([node("ArrowEvalPython")], 0),  # the function may take all of the time
    ],
)
def test_small_files_without_a_measured_time(nodes: list[PlanNode], lost: float) -> None:
    scan_node = node("Scan csv ", number_of_files_read=1, size_of_files_read=2)
    app = application([stage(0, [task(0, 60)] * 4, [scan_node, *nodes])], [query(0, scan_node)], {1: 1000.0, 2: 10e6})
    assert seconds(small_files, app) == pytest.approx(lost, abs=0.002)
    assert all("5 ms per file are assumed" in finding.problem for finding in findings(small_files, app))


def joined_pairs(name: str, left: float, right: float, tasks: int = 4) -> Application:
    sides = [node("Range", number_of_output_rows=1), node("Range", number_of_output_rows=2)]
    join = node(name, *sides)
    return application([stage(0, [task(0, 60)] * tasks, [join])], [query(0, join)], {1: left, 2: right})


@pytest.mark.parametrize(
    ("app", "lost"),
    [
        (joined_pairs("BroadcastNestedLoopJoin", 1e4, 8e4), 10.0),  # 800 million pairs on four cores
        (joined_pairs("BroadcastNestedLoopJoin", 1e6, 1e6), 60.0),  # not longer than the stage
        (joined_pairs("BroadcastNestedLoopJoin", 1e9, 1), 0),  # a single row is a usual join
        (joined_pairs("CartesianProduct", 4e4, 8e4), 10.0),  # each side is read several times
        (joined_pairs("BroadcastHashJoin", 1e4, 8e4), 0),
    ],
)
def test_products(app: Application, lost: float) -> None:
    assert seconds(product, app) == lost


def actions(*plans: PlanNode) -> Application:
    """Return an application with a query per plan, each with a stage of five seconds in which all of its nodes run."""
    stages, queries, number = [], [], 0
    for position, plan in enumerate(plans):
        nodes = list(plan.walk())
        for part in nodes:
            number += 1
            part.metrics["number of output rows"] = number
        rows = [task(5 * position, 5 * position + 5)] * 4
        stages.append(stage(position, rows, nodes, query=position))
        queries.append(query(position, plan))
    return application(stages, queries)


def aggregate(function: str, *children: PlanNode) -> PlanNode:
    return node("HashAggregate", *children, text=f"HashAggregate(keys=[], functions=[{function}(score#1)])")


def scan(path: str, *parents: str, text: str = "") -> PlanNode:
    part = node("Scan parquet", location=path, text="" if parents else text)
    for parent in parents:
        part = node(parent, part, text=text)
    return part


UDF = "ArrowEvalPython"
LONG = "Window " + MAX_TEXT * "x"


def function(text: str) -> PlanNode:
    return aggregate("max", scan("a", UDF, text=text))


@pytest.mark.parametrize(
    ("app", "lost"),
    [
        (actions(aggregate("max", scan("a", UDF)), aggregate("min", scan("a", UDF))), 5.0),
        (actions(*[aggregate("max", scan("a", UDF)) for _ in range(4)]), 15.0),
        (actions(aggregate("max", scan("a", UDF)), aggregate("min", scan("b", UDF))), 0),
        (actions(scan("a", "Filter", text="Filter a"), scan("a", "Filter", text="Filter b")), 5.0),  # the scan is equal
        (
            actions(scan("a", "Window", text="Window a"), scan("a", "Window", text="Window b")),
            0,
        ),  # the windows cost more
        (
            actions(aggregate("max", scan("a", "InMemoryTableScan")), aggregate("min", scan("a", "InMemoryTableScan"))),
            0,
        ),
        (actions(scan("a", "ReusedExchange"), scan("a", "ReusedExchange")), 0),
        (actions(function("[score(id#1)], [f#2]"), function("[score(id#1)], [f#2]")), 5.0),
        (actions(function("[score(id#1)#2], [pythonUDF0#3]"), function("[score(id#1)#2], [pythonUDF0#4]")), 5.0),
        (actions(function("[score(id#1)#2], [pythonUDF0#3]"), function("[score(id#1)#5], [pythonUDF0#3]")), 0),
        (actions(function("[score(id#1)], [f#2]"), function("[score(id#3)], [f#4]")), 0),  # perhaps other closures
        (actions(scan("a", "Window", text="Window [a#1]"), scan("a", "Window", text="Window [a#2]")), 5.0),
        (actions(scan("a", "Window", text="Window [a#1, ...]"), scan("a", "Window", text="Window [a#2, ...]")), 0),
        (actions(scan("a", "Window", text=LONG + "a#1"), scan("a", "Window", text=LONG + "a#2")), 0),
        (actions(scan("a, ..."), scan("a, ...")), 5.0),
        (actions(scan("a, ...", text="Scan [a#1]"), scan("a, ...", text="Scan [a#2]")), 0),
        (actions(function("[<lambda>(id#1)], [f#2]"), function("[<lambda>(id#1)], [f#2]")), 5.0),
        (actions(function("[<lambda>(id#1)#5], [f#2]"), function("[<lambda>(id#1)#6], [f#2]")), 0),
    ],
)
def test_recomputation(app: Application, lost: float) -> None:
    assert seconds(recomputation, app) == lost


@pytest.mark.parametrize(
    ("stages", "lost"),
    [
        ([stage(0, [task(0, 8, killed=1), task(0, 4)])], 0),  # another attempt was faster
        ([stage(0, [task(0, 8, killed=1), task(0, 4, failed=1)])], 1.0),
        (
            [
                stage(0, [task(0, 8, partition=0), task(0, 8, partition=1)]),
                stage(0, [task(9, 17, partition=1)], attempt=1),
                stage(1, [task(8, 9, partition=0), task(8, 9, failed=1, partition=1)], failure="FetchFailed"),
                stage(1, [task(17, 18, partition=1)], attempt=1),
            ],
            2.25,  # the lost partition, and the attempt that did not find it
        ),
        ([stage(0, [task(0, 8)], failure="Job aborted")], 0),  # all of its attempts succeeded
    ],
)
def test_only_attempts_that_ran_again_are_failures(stages: list[Stage], lost: float) -> None:
    assert seconds(failures, application(stages)) == lost


def test_recomputation_by_actions_on_the_same_dataframe() -> None:
    """Their plans have the same metrics."""
    app = actions(scan("a"), scan("a"))
    for part in app.queries.values():
        assert part.plan is not None
        part.plan.metrics["number of output rows"] = 1
    assert seconds(recomputation, app) == 5.0


def test_failed_attempts() -> None:
    failed = stage(0, [task(0, 4, failed=1), task(0, 4, failed=1), task(4, 5)])
    failed.failed_reason = "OSError: no answer"
    (finding,) = findings(failures, application([failed]))
    assert (finding.seconds, finding.figures["failed_attempts"]) == (2.0, 2)
    assert "OSError: no answer" in finding.problem
    assert seconds(failures, application([stage(0, [task(0, 4)])])) == 0


@pytest.mark.parametrize(("gc", "lost"), [(0.5, 0), (3.0, 2.0)])
def test_garbage_collection(gc: float, lost: float) -> None:
    rows = [task(0, 10, run=10, gc=gc)] * 4
    assert seconds(garbage, application([stage(0, rows)])) == lost


@pytest.mark.parametrize(
    ("started", "ended", "lost", "text"),
    [
        (0, 20, 0, ""),
        (0, 30, 10.0, "after its last task"),
        (0, 24, 0, ""),  # shorter gaps are usual
    ],
)
def test_gaps_of_the_driver(started: float, ended: float, lost: float, text: str) -> None:
    stages = [stage(0, [task(8, 12)]), stage(1, [task(12, 20)])]
    app = application(stages, [query(0, None, started=started, ended=ended)])
    assert seconds(driver, app) == lost  # the time before the first task of the application does not count
    assert all(text in finding.problem for finding in findings(driver, app))


@pytest.mark.parametrize(
    ("queries", "lost"),
    [
        ([query(0, None, ended=20.0), query(1, None, ended=20.0)], {0: 12.0}),  # the same gap
        ([query(0, None, ended=10.0), query(1, None, ended=20.0)], {0: 6.0, 1: 6.0}),
        ([query(0, None, ended=20.0, root=0), query(1, None, ended=20.0, root=0)], {0: 12.0}),
        ([query(1, None, ended=20.0, root=7)], {1: 12.0}),  # the log has no event of its root
    ],
)
def test_each_gap_is_reported_once(queries: Any, lost: dict[int, float]) -> None:
    app = application([stage(0, [task(0, 4)], query=1), stage(1, [task(16, 20)], query=1)], queries)
    assert {finding.queries[0]: finding.seconds for finding in findings(driver, app)} == lost


def test_queries_of_a_command_have_its_stages_and_broadcasts() -> None:
    exchange = node("BroadcastExchange", time_to_build=1)
    exchange.query = 1
    stages = [stage(0, [task(0, 4)], query=1), stage(1, [task(16, 20)], query=1)]
    app = application(stages, [query(0, None, ended=20.0, root=0), query(1, exchange, ended=19.0, root=0)])
    app.values[1] = {1: 3000.0}
    (finding,) = findings(driver, app)
    assert finding.seconds == 9.0
    assert "between its tasks" in finding.problem


def test_gaps_between_tasks_without_those_of_broadcasts() -> None:
    exchange = node("BroadcastExchange", time_to_build=1, time_to_collect=2)
    stages: list[Stage] = [stage(0, [task(0, 4)]), stage(1, [task(16, 20)])]
    app = application(stages, [query(0, exchange, started=0.0, ended=20.0)], {1: 3000.0, 2: 500.0})
    (finding,) = findings(driver, app)
    assert finding.seconds == 9.0
    assert "between its tasks" in finding.problem
