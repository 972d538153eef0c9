from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.errors import GraphError
from penstock.graph import (
    AdaptiveGraphManager,
    CalcOperator,
    DynamicFilterRef,
    ScanOperator,
    StreamEdgeUpdateRequest,
    StreamNodeUpdateRequest,
)
from penstock.graph.partitioner import (
    BROADCAST,
    FORWARD,
    REBALANCE,
    ForwardForConsecutiveHashPartitioner,
    ForwardForUnspecifiedPartitioner,
    HashPartitioner,
)
from penstock.testing import stream_graph
from tests.support.logged import messages
from tests.support.words import INTERNAL_TERMS

JOIN = "1 #> 3\n2 #> 3\n3 #> 4"


def context_of(text: str, **facts: Any) -> Any:
    manager = AdaptiveGraphManager(stream_graph(text, **facts))
    return manager, manager.stream_graph_context


@pytest.mark.parametrize(
    ("text", "edge", "partitioner", "result"),
    [
        (JOIN, "1-3", BROADCAST, "BROADCAST"),
        (JOIN, "3-4", REBALANCE, "REBALANCE"),
        (JOIN, "3-4", ForwardForUnspecifiedPartitioner(), "FORWARD"),
        (JOIN, "1-3", ForwardForUnspecifiedPartitioner(), "RESCALE"),  # the source is frozen
        (JOIN, "3-4", ForwardForConsecutiveHashPartitioner(HashPartitioner(("k",))), "FORWARD"),
        (JOIN, "1-3", ForwardForConsecutiveHashPartitioner(HashPartitioner(("j",))), "HASH(j)"),
        (JOIN, "1-3", FORWARD, None),  # its ends cannot share a vertex
        ("1 #> 2\n2 -> 3", "2-3", REBALANCE, None),  # it is FORWARD
        ("1 #> 2\n1 #> 3", "1-2", REBALANCE, None),  # the result is shared
        ("1 #> 2\n1 #> 3", "1-2", BROADCAST, "BROADCAST"),  # shared results can be broadcast
        ("1 #> 2\n1 #> 3", "1-2", ForwardForUnspecifiedPartitioner(), "RESCALE"),
        ("1 -> 2", "1-2", BROADCAST, None),  # the target is frozen
    ],
)
def test_edges(text: Any, edge: str, partitioner: Any, result: str | None) -> None:
    _, context = context_of(text)
    before = str(context.stream_graph.edge(edge).partitioner)
    assert context.modify_stream_edge([StreamEdgeUpdateRequest(edge, partitioner)]) is (result is not None)
    assert str(context.stream_graph.edge(edge).partitioner) == (result or before)


@pytest.mark.parametrize(
    ("text", "requests", "reason", "detail"),
    [
        (JOIN, [StreamNodeUpdateRequest(1, parallelism=3)], "the step has started already", "n1 is frozen"),
        (
            "1 -> 2",
            [StreamEdgeUpdateRequest("1-2", BROADCAST)],
            "the step has started already",
            "the target of 1-2 is frozen",
        ),
        (
            "1 #> 2\n2 -> 3",
            [StreamEdgeUpdateRequest("2-3", REBALANCE)],
            "the rows stay in their task already",
            "2-3 is FORWARD already",
        ),
        (
            JOIN,
            [StreamEdgeUpdateRequest("1-3", FORWARD)],
            "the step has started already",
            "the ends of 1-3 cannot share a vertex",
        ),
        (
            "1 #> 2\n2 #> 3\n2 #> 4",
            [StreamEdgeUpdateRequest("2-3", FORWARD)],
            "several steps read these rows",
            "the ends of 2-3 cannot share a vertex",
        ),
        (
            "1 #> 2\n1 #> 3",
            [StreamEdgeUpdateRequest("1-2", REBALANCE)],
            "several steps read these rows",
            "the result that 1-2 reads is shared by several consumers",
        ),
        (
            JOIN,
            [StreamNodeUpdateRequest(3, parallelism=2), StreamEdgeUpdateRequest("3-4", FORWARD)],
            "the user set different numbers of tasks for the two steps",
            "the ends of 3-4 cannot share a vertex",
        ),
    ],
)
def test_reason_and_detail_of_a_refusal(
    text: str, requests: Any, reason: str, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, context = context_of(text, parallelism={4: 5})
    refused = context._plan(requests)
    assert (refused.reason, refused.detail) == (reason, detail)
    assert not INTERNAL_TERMS.search(refused.reason)
    with caplog.at_level(logging.INFO, "penstock.graph"):
        context._apply_or_refuse(refused)
    assert messages(caplog) == [f"change refused, as {reason}: {detail}"]


def test_nodes_of_different_parallelism_are_not_chained() -> None:
    _, context = context_of(JOIN, parallelism={3: 2, 4: 5})
    assert not context.modify_stream_edge([StreamEdgeUpdateRequest("3-4", FORWARD)])


def test_a_batch_is_applied_whole_or_not_at_all() -> None:
    _, context = context_of(JOIN)
    batch = [StreamEdgeUpdateRequest("1-3", BROADCAST), StreamEdgeUpdateRequest("2-3", FORWARD)]
    assert not context.modify_stream_edge(batch)
    assert str(context.stream_graph.edge("1-3").partitioner) == "HASH(k)"
    batch[1] = StreamEdgeUpdateRequest("2-3", intra_input_correlated=False, type_number=4)
    assert context.modify_stream_edge(batch)
    assert str(context.stream_graph.edge("1-3").partitioner) == "BROADCAST"
    assert not context.stream_graph.edge("2-3").intra_input_correlated
    assert context.stream_graph.edge("2-3").type_number == 4


def test_nodes() -> None:
    _, context = context_of(JOIN)
    cheap, filters = CalcOperator(is_cheap=True), (DynamicFilterRef(3, 0),)
    requests = [
        StreamNodeUpdateRequest(3, parallelism=7, operator=cheap),
        StreamNodeUpdateRequest(3, filters=filters),
        StreamNodeUpdateRequest(4, max_parallelism=2),
    ]
    assert context.modify_stream_node(requests)
    changed = context.stream_graph.node(3)
    assert (changed.parallelism, changed.operator, changed.filters) == (7, cheap, filters)
    assert not context.modify_stream_node(
        [StreamNodeUpdateRequest(4, parallelism=3), StreamNodeUpdateRequest(1, parallelism=3)]
    )
    assert context.stream_graph.node(4).parallelism is None


def test_a_node_keeps_its_kind() -> None:
    _, context = context_of(JOIN)
    with pytest.raises(GraphError, match="n3 is a Calc, and cannot become a Source"):
        context.modify_stream_node([StreamNodeUpdateRequest(3, operator=ScanOperator())])


def test_frozen_once_the_inputs_have_finished() -> None:
    manager, context = context_of(JOIN)
    assert not context.is_frozen(3)
    for vertex in list(manager.job_graph):
        manager.finish(vertex.id)
    manager.grow()
    assert context.is_frozen(3)
    assert not context.modify_stream_edge([StreamEdgeUpdateRequest("1-3", BROADCAST)])
