"""Calls the strategies of a job, and isolates the job from their errors (FLIP-469)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, cast

from penstock.config.options import OPTIMIZATION_STRATEGIES
from penstock.errors import ConfigError, OptimizerError, first_line
from penstock.optimizer.broadcast_join import AdaptiveBroadcastJoin
from penstock.optimizer.build_side_first import BuildSideFirst
from penstock.optimizer.collapse_exchanges import CollapseExchanges
from penstock.optimizer.dynamic_filtering import DynamicFiltering
from penstock.optimizer.early_aggregation import EarlyAggregation
from penstock.optimizer.join_algorithm import JoinAlgorithm
from penstock.optimizer.join_order import JoinOrder
from penstock.optimizer.skewed_aggregation import AdaptiveSkewedAggregation
from penstock.optimizer.skewed_join import AdaptiveSkewedJoin
from penstock.optimizer.skewed_window import AdaptiveSkewedWindow
from penstock.optimizer.strategy import StrategyContext, StreamGraphOptimizationStrategy
from penstock.optimizer.user_strategies import STRATEGY_FORMS, UserStrategy, as_strategy, is_strategy

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.decisions.log import DecisionLog
    from penstock.graph import AdaptiveGraphManager
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
"""The strategies of every job, in call order. User-defined strategies are called after them."""

_MAX_ROUNDS = 100
"""The maximum number of times that all strategies are called after a vertex has finished."""


@dataclass(eq=False)
class StreamGraphOptimizer:
    """Calls strategies in turn until none of them changes the graph."""

    strategies: InitVar[Sequence[StreamGraphOptimizationStrategy]]
    _config: Configuration
    _resources: Resources
    _decisions: DecisionLog

    def __post_init__(self, strategies: Sequence[StreamGraphOptimizationStrategy]) -> None:
        self._strategies = list(strategies)

    def initialize(self, owner: AdaptiveGraphManager) -> None:
        """Initialize the strategies with the graph before the job starts."""
        self._context = StrategyContext(owner, self._config, self._resources, self._decisions)
        for strategy in list(self._strategies):
            self._call(strategy, partial(strategy.initialize, self._context))

    def on_operators_finished(self, finished: OperatorsFinished) -> bool:
        """Let the strategies change the pending graph; return whether it changed.

        If a strategy raises an error, the error is recorded, the changes of that call are undone, and the strategy is
        not called again. Raise `OptimizerError` if a strategy keeps changing the graph.
        """
        self._context.add_results(finished.results)
        changed_by: list[StreamGraphOptimizationStrategy] = []
        for _ in range(_MAX_ROUNDS):
            changing = [
                strategy
                for strategy in list(self._strategies)
                if self._call(strategy, partial(strategy.on_operators_finished, finished, self._context))
            ]
            if not changing:
                return bool(changed_by)
            changed_by = changing
        names = [strategy.name for strategy in changed_by]
        raise OptimizerError(
            f"after {_MAX_ROUNDS} rounds, {' and '.join(names)} still change{'s' * (len(names) == 1)} the job's graph",
            cause="on_operators_finished returned True every time",
            hint="return False once the strategy has nothing left to change",
        )

    def on_operators_running(self, running: OperatorsRunning) -> None:
        """Pass partial output of running operators to the strategies; a strategy that raises is not called again."""
        for strategy in list(self._strategies):
            self._call(strategy, partial(strategy.on_operators_running, running, self._context))

    def _call(self, strategy: StreamGraphOptimizationStrategy, call: Callable[[], bool | None]) -> bool:
        """Call a method of a strategy; return its result, or False if it raised an error."""
        self._context.begin(strategy.name)
        try:
            return bool(call())
        except Exception as error:  # noqa: BLE001 - the job continues without the strategy
            self._skip(strategy, error)
            return False

    def _skip(self, strategy: StreamGraphOptimizationStrategy, error: Exception) -> None:
        log.warning("strategy %s raised an error and is not called again in this job", strategy.name, exc_info=error)
        self._strategies.remove(strategy)
        self._context.undo(strategy.name, f"it raised {type(error).__name__}: {first_line(error)}")


def strategies_of(
    config: Configuration, user_strategies: Sequence[UserStrategy]
) -> list[StreamGraphOptimizationStrategy]:
    """Return the strategies of a new job: the default strategies, those in the options, and `user_strategies`.

    Raise `ConfigError` if an import path in the options does not lead to a strategy.
    """
    paths = config.get(OPTIMIZATION_STRATEGIES) or ()
    assert isinstance(paths, tuple)
    return [as_strategy(strategy) for strategy in (*DEFAULT_STRATEGIES, *map(_load, paths), *user_strategies)]


def _load(path: str) -> UserStrategy:
    module, _, name = path.rpartition(".")
    key = OPTIMIZATION_STRATEGIES.key
    try:
        strategy = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"the strategy {path!r} cannot be imported", cause=str(error), hint=f"set {key} to module.Class"
        ) from error
    if not is_strategy(strategy):
        raise ConfigError(f"{path!r} in {key} is not a strategy", hint=STRATEGY_FORMS)
    return cast("UserStrategy", strategy)
