"""Makes finished results leaves of a vertex's plan, and says of each how its rows lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.execution.reads import CoalescedRead, SlicedRead
from penstock.optimizer.graphs import is_broadcast
from penstock.planner.plan import WriteKind
from penstock.spark import exchange, fragment, verification
from penstock.spark.exchange import BroadcastResult

if TYPE_CHECKING:
    from penstock.execution.broadcasts import Broadcasts
    from penstock.execution.context import JobContext
    from penstock.execution.reads import EdgeRead
    from penstock.execution.results import ResultStore
    from penstock.graph import StreamEdge
    from penstock.spark.exchange import StagedResult


class Leaves:
    """The leaves of one job.

    Parameters
    ----------
    context
        The job.
    results, broadcasts
        What its vertices have written, and the relations made of it.
    """

    def __init__(self, context: JobContext, results: ResultStore, broadcasts: Broadcasts) -> None:
        self._context = context
        self.results = results
        self.broadcasts = broadcasts

    def leaf(self, edge: StreamEdge, read: EdgeRead, *, shared: bool, meets: bool) -> Any:
        """Return what an edge reads as a leaf of a logical plan.

        Parameters
        ----------
        edge, read
            The edge, and how it is read.
        shared
            Whether inputs that are cut alike are read as they lie by operators of several inputs.
        meets
            Whether slices of several inputs meet in the operator.
        """
        bridge, plan = self._context.bridge, self._context.plan.edges[edge.id]
        result = self.results.finished(edge.source_id)
        if isinstance(result, BroadcastResult):
            return fragment.broadcast_leaf(bridge, plan.attributes, result.stage)
        if is_broadcast(edge) and plan.write is WriteKind.SIDE:
            relation = self.broadcasts.relation(edge, result)
            if relation is not None:
                return fragment.broadcast_leaf(bridge, plan.attributes, relation.stage)
        is_operator = plan.write is WriteKind.OPERATOR and plan.operator is not None
        output = plan.operator.handle.output() if is_operator and plan.operator is not None else plan.attributes
        if isinstance(read, SlicedRead):
            rdd, layout, told = self._sliced(edge, read, result, output, meets=meets)
        else:
            rdd, layout, told = self._whole(edge, read, result, output, shared=shared)
        if self._context.verify and told is not None:
            rdd = verification.checked(bridge, rdd, told, output, f"the input {edge.id}")
        return fragment.rdd_leaf(
            bridge,
            bridge.session,
            output,
            rdd,
            layout=layout,
            ordering=result.above.outputOrdering() if is_operator else None,
            statistics=result.statistics if result.is_plain_exchange else None,
        )

    def _whole(
        self, edge: StreamEdge, read: EdgeRead, result: StagedResult, output: Any, *, shared: bool
    ) -> tuple[Any, Any, Any]:
        """Return the rows of whole subpartitions, the layout they claim, and the one that can be checked."""
        bridge = self._context.bridge
        ranges = read.ranges if isinstance(read, CoalescedRead) and not is_broadcast(edge) else None
        physical = exchange.as_cut(bridge, result, ranges)
        told = exchange.layout(bridge, physical, output)
        return physical.execute(), exchange.shareable(bridge, told) if shared else told, told

    def _sliced(
        self, edge: StreamEdge, read: SlicedRead, result: StagedResult, output: Any, *, meets: bool
    ) -> tuple[Any, Any, Any]:
        """Return the rows of slices, the layout they claim towards a join of them, and the one that can be checked."""
        bridge, plan = self._context.bridge, self._context.plan.edges[edge.id]
        pieces = [[(one.subpartitions, one.mappers) for one in task] for task in read.tasks]
        rdd = exchange.read_slices(bridge, result, pieces)
        joint = fragment.joint_layout(bridge, plan.keys, len(read.tasks)) if meets else None
        told = None
        if self._context.verify and all(len(task) == 1 for task in read.tasks):
            lies = exchange.layout(bridge, result.above, output)
            told = verification.span_layout(bridge, lies, [task[0].subpartitions for task in read.tasks])
        return rdd, exchange.shareable(bridge, joint), told
