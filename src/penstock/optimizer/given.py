"""What a user may give as a strategy: one of the interface, an object with FLIP-469's one method, or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, cast, runtime_checkable

from penstock.arguments import check_members, check_type
from penstock.optimizer.strategy import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy


@runtime_checkable
class MaybeOptimizesStreamGraph(Protocol):
    """A strategy as FLIP-469 spells it: one method."""

    def maybe_optimize_stream_graph(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Do what `StreamGraphOptimizationStrategy.on_operators_finished` does."""


StrategyFunction: TypeAlias = Callable[[OperatorsFinished, StrategyContext], bool]
GivenStrategy: TypeAlias = (
    StreamGraphOptimizationStrategy
    | MaybeOptimizesStreamGraph
    | StrategyFunction
    | type[StreamGraphOptimizationStrategy | MaybeOptimizesStreamGraph]
)
"""A class is made anew for each job; an object or a function serves all jobs."""

_WANTED = "strategies"
_HINT = (
    "derive it from penstock.optimizer.StreamGraphOptimizationStrategy, or give a function of what has finished and of "
    "the context; all of them in a list"
)


class _OfOneMethod(StreamGraphOptimizationStrategy):
    """A strategy that is nothing but the one method."""

    def __init__(self, name: str, optimize: StrategyFunction) -> None:
        self._name = name
        self._optimize = optimize

    @property
    def name(self) -> str:
        return self._name

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        return self._optimize(finished, context)


def check_strategies(given: object) -> None:
    """Refuse what is no list of strategies.

    Raises
    ------
    ArgumentError
        If one of them cannot be called as a strategy.
    """
    check_members(given, object, _WANTED, _WANTED, _HINT)
    for one in cast("list[object]", given):
        if not is_strategy(one):
            check_type(one, StreamGraphOptimizationStrategy, _WANTED, _WANTED, _HINT)


def is_strategy(given: object) -> bool:
    """Whether something can be called as a strategy, or makes something that can be."""
    if isinstance(given, type):
        return issubclass(given, StreamGraphOptimizationStrategy) or hasattr(given, "maybe_optimize_stream_graph")
    return isinstance(given, StreamGraphOptimizationStrategy | MaybeOptimizesStreamGraph) or callable(given)


def as_strategy(given: GivenStrategy) -> StreamGraphOptimizationStrategy:
    """Return what was given as a strategy of the interface; a class makes a new one."""
    one = given() if isinstance(given, type) else given
    if isinstance(one, StreamGraphOptimizationStrategy):
        return one
    if isinstance(one, MaybeOptimizesStreamGraph):
        return _OfOneMethod(type(one).__name__, one.maybe_optimize_stream_graph)
    return _OfOneMethod(getattr(one, "__name__", type(one).__name__), one)
