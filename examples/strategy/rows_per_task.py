"""A strategy for work that costs by the row: a step gets no more tasks than its rows are worth.

Penstock counts bytes. A model that is asked once for each row takes as long for a short row as for a long one, and
each of its tasks takes seconds to start.
"""

from __future__ import annotations

import math

from penstock.decisions import DecisionKind
from penstock.graph import StreamNodeUpdateRequest
from penstock.optimizer import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy


class RowsPerTask(StreamGraphOptimizationStrategy):
    """Gives no task fewer than a number of rows.

    Parameters
    ----------
    rows
        As many rows are worth a task.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        changed = False
        for node_id, result in finished.results.items():
            if result.rows is None:
                continue
            most = max(1, math.ceil(result.rows / self._rows))
            for edge in context.stream_graph.out_edges(node_id):
                node = context.stream_graph.node(edge.target_id)
                if edge.is_forward or len(context.stream_graph.in_edges(node.id)) > 1:
                    continue  # a join reads more than these rows
                if node.max_parallelism is not None and node.max_parallelism <= most:
                    continue
                request = StreamNodeUpdateRequest(node.id, max_parallelism=most)
                reason = f"{result.rows} rows come, and {self._rows} are worth a task"
                kind = DecisionKind.VERTEX_PARALLELISM
                changed |= context.change([request], kind, node, most, reason, rows=result.rows)
        return changed
