from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.graph import DynamicFilterRef, FilterPath, JoinInput, JoinOperator, JoinType, ScanOperator, Side
from penstock.optimizer.dynamic_filtering import DynamicFiltering, filter_selectivity
from penstock.testing import MIB, StrategyHarness, measured


@pytest.mark.parametrize(
    ("rows", "scanned", "filtered", "expected"),
    [
        (10, 100, 1000, 0.1),
        (10, 1000, 100, 0.1),  # the keys are unique in the filtered table
        (500, 1000, 100, 1.0),
        (10, None, 100, None),  # the source of the keys is unknown
        (10, 100, None, 0.1),
        (0, None, None, 0.0),
        (None, 100, 100, None),
    ],
)
def test_filter_selectivity(
    rows: int | None, scanned: int | None, filtered: int | None, expected: float | None
) -> None:
    assert filter_selectivity(rows, scanned, filtered) == expected


SOURCE = ScanOperator(rows=10_000_000)


def path_to(targets: Any, join_id: int = 3, side: Any = Side.LEFT, **facts: Any) -> Any:
    """Return a path on which keys of the right side of a join filter rows."""
    return FilterPath(side, targets, JoinInput(join_id, Side.RIGHT), **facts)


def inner(*paths: Any) -> Any:
    return JoinOperator(JoinType.INNER, filters=paths)


def case(path: Any, text: str = "1 #> 3\n2 #> 3\n3 -> 4", config: Any = None) -> Any:
    return StrategyHarness([DynamicFiltering], text, {3: inner(path), 1: SOURCE}, config=config)


def filtered_nodes(job: Any) -> Any:
    return {node.id for node in job.graph if node.filters}


PENDING = "0 #> 1\n1 #> 3\n2 #> 3\n3 -> 4"  # 1 is pending until 0 has finished


@pytest.mark.parametrize(
    ("rows", "scanned", "expected"),
    [
        (1000, 10_000, {1}),
        (9000, 10_000, set()),
        (1000, None, set()),
        (0, None, {1}),
        (9_000_000, 90_000_000, set()),  # too many keys
    ],
)
def test_a_filter_is_added_if_it_is_selective(rows: int, scanned: int | None, expected: Any) -> None:
    job = case(path_to((1,), keys_from=2), PENDING)
    job.finish(2, measured(30, rows=rows, scanned=scanned and {2: scanned}))
    assert filtered_nodes(job) == expected


def test_running_nodes_are_skipped_for_later_targets() -> None:
    path = path_to((1, 5), keys_from=2)
    text = "1 #> 5\n5 #> 3\n2 #> 3\n3 -> 4"
    job = case(path, text)
    job.finish(2, measured(30, rows=10, scanned={2: 1000}))
    assert filtered_nodes(job) == {5}
    assert job.graph.node(5).filters == (DynamicFilterRef(3, 0),)


def test_no_filter_without_an_exchange_before_the_join() -> None:
    job = case(path_to((1,), keys_from=2), "0 #> 1\n1 -> 3\n2 *> 3\n3 -> 4")
    job.finish(2, measured(1, rows=10, scanned={2: 1000}))
    assert filtered_nodes(job) == set()


def test_no_filter_if_a_chained_join_looks_up_the_same_keys() -> None:
    # 5 comes after an exchange, and its keys are those of 2, which 3 already looks up
    path = path_to((1, 3, 4), keys_from=2)
    facts = {1: SOURCE, 3: inner(), 5: inner(path)}
    job = StrategyHarness([DynamicFiltering], "0 #> 1\n1 -> 3\n2 *> 3\n3 -> 4\n4 #> 5\n6 #> 5", facts)
    job.finish(2, measured(1, rows=10, scanned={2: 1000}))
    assert filtered_nodes(job) == set()


def test_a_source_that_can_skip_data_is_filtered_without_an_exchange() -> None:
    job = case(path_to((1,), keys_from=2, prunes=True), "0 #> 1\n1 -> 3\n2 *> 3\n3 -> 4")
    job.finish(2, measured(1, rows=10))
    assert filtered_nodes(job) == {1}
    assert job.decisions[-1].reason == "the source can skip data that has none of the keys of its 10 rows"


def test_the_reason_for_a_source_that_can_skip_data_has_the_selectivity() -> None:
    job = case(path_to((1,), keys_from=2, prunes=True), "0 #> 1\n1 -> 3\n2 *> 3\n3 -> 4")
    job.finish(2, measured(1, rows=10, scanned={2: 1000}))
    assert job.decisions[-1].reason.endswith("of the keys of its 10 rows, which keep about 1.0% of the rows")


@pytest.mark.parametrize(
    ("size", "after", "expected"),
    [
        (17, "1 *> 6", set()),  # a tenth remains: 15.3 MiB would be saved, less than a task reads
        (18, "1 *> 6", {1}),
        (17, "1 -> 8\n8 *> 6", set()),
        (17, "1 #> 6", {1}),  # with an exchange, it may become small enough to broadcast
    ],
)
def test_a_small_broadcast_table_is_not_filtered(size: int, after: str, expected: Any) -> None:
    path = path_to((1,), keys_from=2)
    facts = {1: replace(SOURCE, bytes=size * MIB), 3: inner(path)}
    job = StrategyHarness([DynamicFiltering], f"0 #> 1\n7 -> 6\n{after}\n6 -> 3\n2 *> 3\n3 -> 4", facts)
    job.finish(2, measured(1, rows=10, scanned={2: 100}))
    assert filtered_nodes(job) == expected


# the joins that look up table 1, the filter paths of its own keys, the filtered nodes
LOOKED_UP = {
    "in the same vertex": ("7 -> 6\n1 *> 6\n6 -> 3\n2 *> 3\n3 -> 4", (), set()),
    "rows are exchanged between the joins": ("7 -> 6\n1 *> 6\n6 #> 3\n2 *> 3\n3 -> 4", (), {1}),
    "its keys filter exchanged rows": (
        "7 #> 6\n1 *> 6\n6 -> 3\n2 *> 3\n3 -> 4",
        (path_to((7,), 6, keys_from=1),),
        {1},
    ),
    "its keys filter rows that are not exchanged": (
        "7 -> 6\n1 *> 6\n6 -> 3\n2 *> 3\n3 -> 4",
        (path_to((7,), 6, keys_from=1),),
        set(),
    ),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_a_small_table_is_filtered_if_fewer_rows_are_exchanged(name: str) -> None:
    text, paths, expected = LOOKED_UP[name]
    path = path_to((1,), side=Side.RIGHT, keys_from=2)
    facts = {
        1: replace(SOURCE, bytes=5 * MIB),
        3: inner(path),
        6: inner(*paths),
    }
    job = StrategyHarness([DynamicFiltering], f"0 #> 1\n{text}", facts)
    job.finish(2, measured(1, rows=10, scanned={2: 100}))
    assert filtered_nodes(job) == expected


@pytest.mark.parametrize(("rows", "expected"), [(10_000, {1}), (10_001, set())])
def test_a_database_filters_by_a_limited_number_of_exact_keys(rows: int, expected: Any) -> None:
    job = case(path_to((1,), prunes=True, exact=True), "0 #> 1\n1 -> 3\n2 *> 3\n3 -> 4")
    job.finish(2, measured(1, rows=rows))
    assert filtered_nodes(job) == expected


@pytest.mark.parametrize(("dimension_rows", "expected"), [(10, {6}), (900, {1})])
def test_a_filter_is_placed_above_joins_that_are_more_selective(dimension_rows: int, expected: Any) -> None:
    # 1 is chained to 6, which looks up the broadcast side 5, before the exchange to 3
    text = "0 #> 1\n1 -> 6\n5 *> 6\n6 #> 3\n2 #> 3\n3 -> 4"
    dimension = path_to((1,), 6, keys_from=5)
    operators = {1: SOURCE, 6: inner(dimension), 3: inner(path_to((1, 6), keys_from=2))}
    job = StrategyHarness([DynamicFiltering], text, operators)
    job.finish(5, measured(1, rows=dimension_rows, scanned={5: 1000}))
    job.finish(2, measured(30, rows=300, scanned={2: 1000}))
    assert filtered_nodes(job) == expected


def test_a_shared_result_is_not_filtered() -> None:
    job = case(path_to((1,), keys_from=2), PENDING + "\n1 #> 9")
    job.finish(2, measured(30, rows=10, scanned={2: 1000}))
    assert filtered_nodes(job) == set()


def test_option_disables_filters() -> None:
    config = {"table.optimizer.dynamic-filtering.enabled": False}
    job = case(path_to((1,), keys_from=2), PENDING, config=config)
    job.finish(2, measured(30, rows=10, scanned={2: 1000}))
    assert filtered_nodes(job) == set()
