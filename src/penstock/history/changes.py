"""Descriptions of the changes of an operator while its job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph import AggregateOperator, JoinOperator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.graph import JoinStrategy, StreamNode

Change = tuple[str, str]
"""The descriptions before and after the change."""


def node_changes(before: StreamNode, after: StreamNode) -> Iterator[Change]:
    """Yield the changes of a node that matter to users; data that only supports decisions is left out."""
    if before.parallelism != after.parallelism:
        yield f"parallelism {before.parallelism}", f"parallelism {after.parallelism}"
    if before.max_parallelism != after.max_parallelism:
        yield f"maximum {before.max_parallelism}", f"maximum {after.max_parallelism}"
    if before.filters != after.filters:
        yield _filters(before), _filters(after)
    match before.operator, after.operator:
        case JoinOperator(strategy=old), JoinOperator(strategy=new):
            yield from _join_changes(old, new)
        case AggregateOperator(aggregates_first=False), AggregateOperator(aggregates_first=True):
            yield "aggregates after rows are copied", "aggregates before rows are copied"


def _join_changes(before: JoinStrategy, after: JoinStrategy) -> Iterator[Change]:
    if before.algorithm != after.algorithm:
        yield _algorithm(before), _algorithm(after)
    if before.sequence != after.sequence:
        yield _order(before), _order(after)


def _algorithm(strategy: JoinStrategy) -> str:
    if strategy.algorithm is None:
        return "join algorithm undecided"
    return f"{strategy.algorithm}" + ("" if strategy.build is None else f", builds {strategy.build}")


def _order(strategy: JoinStrategy) -> str:
    if strategy.sequence is None:
        return "joins in the order of the query"
    return "joins in the order " + ", ".join(map(str, strategy.sequence.joins))


def _filters(node: StreamNode) -> str:
    if not node.filters:
        return "no dynamic filter"
    return "filtered by keys of " + " and ".join(f"join {ref.join_id}" for ref in node.filters)
