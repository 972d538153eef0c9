"""The forms of user-defined strategies: the interface, an object with the method of FLIP-469, or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, cast, runtime_checkable

from penstock.base.arguments import check_members, invalid_argument
from penstock.optimizer.strategy import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy


@runtime_checkable
class MaybeOptimizesStreamGraph(Protocol):
    """A strategy as FLIP-469 defines it, with a single method."""

    def maybe_optimize_stream_graph(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Do what `StreamGraphOptimizationStrategy.on_operators_finished` does."""


StrategyFunction: TypeAlias = Callable[[OperatorsFinished, StrategyContext], bool]
UserStrategy: TypeAlias = (
    StreamGraphOptimizationStrategy
    | MaybeOptimizesStreamGraph
    | StrategyFunction
    | type[StreamGraphOptimizationStrategy | MaybeOptimizesStreamGraph]
)
"""A class is instantiated for each job; an object or a function is shared by all jobs."""

_ARGUMENT = "strategies"
STRATEGY_FORMS = (
    "use subclasses of penstock.optimizer.StreamGraphOptimizationStrategy that define on_operators_finished or "
    "maybe_optimize_stream_graph, or functions that take the finished operators and the context"
)
"""The advice of errors about objects that are not strategies."""


class _FunctionStrategy(StreamGraphOptimizationStrategy):
    def __init__(self, name: str, optimize: StrategyFunction) -> None:
        self._name = name
        self._optimize = optimize

    @property
    def name(self) -> str:
        return self._name

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        return self._optimize(finished, context)


def check_strategies(strategies: object) -> None:
    """Raise `ArgumentError` if `strategies` is not a list, or if a member is not a strategy (see `is_strategy`)."""
    check_members(strategies, object, _ARGUMENT, _ARGUMENT, STRATEGY_FORMS)
    for strategy in cast("list[object]", strategies):
        if not is_strategy(strategy):
            raise invalid_argument(strategy, _ARGUMENT, _ARGUMENT, STRATEGY_FORMS)


def is_strategy(candidate: object) -> bool:
    """Whether an object is a strategy in one of the forms of `UserStrategy`."""
    strategy_class = candidate if isinstance(candidate, type) else type(candidate)
    if issubclass(strategy_class, StreamGraphOptimizationStrategy):
        return any(
            getattr(strategy_class, method) is not getattr(StreamGraphOptimizationStrategy, method)
            for method in ("on_operators_finished", "maybe_optimize_stream_graph")
        )
    if isinstance(candidate, type):
        return hasattr(candidate, "maybe_optimize_stream_graph")
    return isinstance(candidate, MaybeOptimizesStreamGraph) or callable(candidate)


def as_strategy(user_strategy: UserStrategy) -> StreamGraphOptimizationStrategy:
    """Return a user-defined strategy as an object of the interface; a class is instantiated."""
    strategy = user_strategy() if isinstance(user_strategy, type) else user_strategy
    if isinstance(strategy, StreamGraphOptimizationStrategy):
        return strategy
    name = type(strategy).__name__
    if isinstance(strategy, MaybeOptimizesStreamGraph):
        return _FunctionStrategy(name, strategy.maybe_optimize_stream_graph)
    return _FunctionStrategy(getattr(strategy, "__name__", name), strategy)
