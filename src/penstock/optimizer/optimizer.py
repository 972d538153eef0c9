"""Calls the strategies of a job, and keeps the job safe from them (FLIP-469)."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, cast

from penstock.config.options import OPTIMIZATION_STRATEGIES
from penstock.errors import ConfigError, OptimizerError, first_line
from penstock.optimizer.broadcast_join import AdaptiveBroadcastJoin
from penstock.optimizer.build_side_first import BuildSideFirst
from penstock.optimizer.collapse_exchanges import CollapseExchanges
from penstock.optimizer.dynamic_filtering import DynamicFiltering
from penstock.optimizer.early_aggregation import EarlyAggregation
from penstock.optimizer.given import as_strategy, is_strategy
from penstock.optimizer.join_algorithm import JoinAlgorithm
from penstock.optimizer.join_order import JoinOrder
from penstock.optimizer.skewed_aggregation import AdaptiveSkewedAggregation
from penstock.optimizer.skewed_join import AdaptiveSkewedJoin
from penstock.optimizer.skewed_window import AdaptiveSkewedWindow
from penstock.optimizer.strategy import StrategyContext, StreamGraphOptimizationStrategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config import Configuration
    from penstock.decisions import DecisionLog
    from penstock.graph.context import PendingGraph
    from penstock.optimizer.given import GivenStrategy
    from penstock.optimizer.strategy import OperatorsFinished, OperatorsRunning, Resources

log = logging.getLogger("penstock.optimizer")

DEFAULT_STRATEGIES: tuple[type[StreamGraphOptimizationStrategy], ...] = (
    BuildSideFirst,
    AdaptiveBroadcastJoin,
    DynamicFiltering,
    JoinOrder,
    EarlyAggregation,
    AdaptiveSkewedJoin,
    AdaptiveSkewedAggregation,
    AdaptiveSkewedWindow,
    JoinAlgorithm,
    CollapseExchanges,
)
"""In the order in which they are called; the user's own come after them."""

_ROUNDS = 100
"""How often strategies may change the graph because of one finished vertex."""


class StreamGraphOptimizer:
    """Calls strategies in turn until none of them changes the graph any more.

    Parameters
    ----------
    strategies
        The strategies, in order.
    config, resources, decisions
        Passed to them, see `StrategyContext`.
    """

    def __init__(
        self,
        strategies: Sequence[StreamGraphOptimizationStrategy],
        config: Configuration,
        resources: Resources,
        decisions: DecisionLog,
    ) -> None:
        self._strategies = list(strategies)
        self._config = config
        self._resources = resources
        self._decisions = decisions

    def initialize(self, owner: PendingGraph) -> None:
        """Show the strategies the graph before anything runs."""
        self._context = StrategyContext(owner, self._config, self._resources, self._decisions)
        for strategy in list(self._strategies):
            self._context.begin(strategy.name)
            try:
                strategy.initialize(self._context)
            except Exception as error:  # noqa: BLE001 - whatever a strategy does, the job goes on
                self._skip(strategy, error)

    def on_operators_finished(self, finished: OperatorsFinished) -> bool:
        """Let the strategies change the pending graph; return whether they did.

        If a strategy raises, that is recorded, its changes in that call are undone, and it is not called again.

        Raises
        ------
        OptimizerError
            If a strategy keeps changing the graph.
        """
        self._context.add_results(finished.results)
        changed_by: list[StreamGraphOptimizationStrategy] = []
        for _ in range(_ROUNDS):
            changing = [strategy for strategy in list(self._strategies) if self._call(strategy, finished)]
            if not changing:
                return bool(changed_by)
            changed_by = changing
        raise OptimizerError.unsettled([strategy.name for strategy in changed_by], _ROUNDS)

    def on_operators_running(self, running: OperatorsRunning) -> None:
        """Let the strategies look at what running operators have written; one that raises is not called again."""
        for strategy in list(self._strategies):
            self._context.begin(strategy.name)
            try:
                strategy.on_operators_running(running, self._context)
            except Exception as error:  # noqa: BLE001 - whatever a strategy does, the job goes on
                self._skip(strategy, error)

    def _call(self, strategy: StreamGraphOptimizationStrategy, finished: OperatorsFinished) -> bool:
        self._context.begin(strategy.name)
        try:
            return strategy.on_operators_finished(finished, self._context)
        except Exception as error:  # noqa: BLE001 - whatever a strategy does, the job goes on
            self._skip(strategy, error)
            return False

    def _skip(self, strategy: StreamGraphOptimizationStrategy, error: Exception) -> None:
        log.warning("strategy %s raised and is not called again in this job", strategy.name, exc_info=error)
        self._strategies.remove(strategy)
        self._context.undo(strategy.name, f"it raised {type(error).__name__}: {first_line(error)}")


def strategies_of(config: Configuration, given: Sequence[GivenStrategy]) -> list[StreamGraphOptimizationStrategy]:
    """Return new strategies for a job: the default ones, those of the options, and those that were given.

    Raises
    ------
    ConfigError
        If an import path of the option does not name a strategy.
    """
    named = config.get(OPTIMIZATION_STRATEGIES) or ()
    assert isinstance(named, tuple)
    return [as_strategy(one) for one in (*DEFAULT_STRATEGIES, *map(_imported, named), *given)]


def _imported(path: str) -> GivenStrategy:
    module, _, name = path.rpartition(".")
    key = OPTIMIZATION_STRATEGIES.key
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"the strategy {path!r} cannot be imported", cause=str(error), hint=f"give module.Class in {key}"
        ) from error
    if not is_strategy(found):
        raise ConfigError(f"{path!r} in {key} is not a strategy", hint="derive it from StreamGraphOptimizationStrategy")
    return cast("GivenStrategy", found)
