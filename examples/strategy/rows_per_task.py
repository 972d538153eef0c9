"""Strategy for operators whose cost depends on the number of rows: it limits their tasks.

Penstock sizes tasks by bytes. But a model that is called for each row takes as long for a short row as for a long row,
and each of its tasks takes seconds to start.
"""

from __future__ import annotations

import math

from penstock.decisions.log import DecisionKind
from penstock.graph import StreamNodeUpdateRequest
from penstock.optimizer import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy


class RowsPerTask(StreamGraphOptimizationStrategy):
    """Limit the parallelism of operators, so that each task gets enough rows.

    Parameters
    ----------
    rows
        The number of rows that is worth a task.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        changed = False
        for node_id, result in finished.results.items():
            if result.rows is None:
                continue
            limit = max(1, math.ceil(result.rows / self._rows))
            for edge in context.stream_graph.out_edges(node_id):
                node = context.stream_graph.node(edge.target_id)
                if edge.is_forward or len(context.stream_graph.in_edges(node.id)) > 1:
                    continue  # a join also reads other rows
                if node.max_parallelism is not None and node.max_parallelism <= limit:
                    continue
                request = StreamNodeUpdateRequest(node.id, max_parallelism=limit)
                reason = f"the input has {result.rows} rows, and a task is worth {self._rows} rows"
                kind = DecisionKind.VERTEX_PARALLELISM
                changed |= context.change([request], kind, node, limit, reason, rows=result.rows)
        return changed
