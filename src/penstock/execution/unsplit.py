"""Records that hot partitions could not be split."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind, NodeRef
from penstock.optimizer.skew import LARGEST

if TYPE_CHECKING:
    from penstock.execution.context import JobContext


def record_unsplit(context: JobContext, node_id: int, because: str) -> None:
    """Record for the decisions about a node's hot partitions and its tasks that whole partitions are read."""
    log, node = context.decisions, NodeRef(node_id, context.graph.node(node_id).name)
    log.record_fallback(
        DecisionKind.SKEW, node, "its partitions are not split", because, lambda decision: LARGEST in decision.figures
    )
    for decision in log.of((node_id,), DecisionKind.SKEW):
        if LARGEST in decision.figures:
            log.settle(decision.id, split=0)
    for decision in log.of((node_id,), DecisionKind.VERTEX_PARALLELISM):
        log.settle(decision.id, instead="its tasks read whole partitions", because=because)
