from __future__ import annotations

from typing import Any, Never

import pytest

from penstock.config import Configuration
from penstock.decisions.log import DecisionKind
from penstock.errors import ArgumentError, ConfigError, OptimizerError
from penstock.graph import StreamEdgeUpdateRequest, StreamNodeUpdateRequest
from penstock.graph.partitioner import REBALANCE
from penstock.optimizer import StreamGraphOptimizationStrategy
from penstock.optimizer.optimizer import DEFAULT_STRATEGIES, strategies_of
from penstock.optimizer.user_strategies import check_strategies
from penstock.testing import StrategyHarness, measured

KEY = "execution.batch.adaptive.stream-graph-optimization.strategies"


class Breaks(StreamGraphOptimizationStrategy):
    def on_operators_finished(self, finished: Any, context: Any) -> Never:
        assert context.modify_stream_edge([StreamEdgeUpdateRequest("2-3", REBALANCE)])
        raise RuntimeError("no luck")


class Restless(StreamGraphOptimizationStrategy):
    def on_operators_finished(self, finished: Any, context: Any) -> bool:
        return True


class Limits(StreamGraphOptimizationStrategy):
    def on_operators_finished(self, finished: Any, context: Any) -> Any:
        if context.stream_graph.node(2).max_parallelism == 3:
            return False
        return context.modify_stream_node([StreamNodeUpdateRequest(2, max_parallelism=3)])


def test_a_strategy_that_raises_is_rolled_back_recorded_and_skipped() -> None:
    job = StrategyHarness([Breaks, Limits], "1 #> 2\n2 #> 3", skips=True)
    job.finish(1, measured(1))
    assert job.edges == {"1 #> 2", "2 #> 3"}
    (decision,) = job.decisions
    assert str(decision) == "Breaks: skipped, as it raised RuntimeError: no luck"
    assert job.graph.node(2).max_parallelism == 3
    job.finish(2, measured(1))
    assert len(job.decisions) == 1


def test_a_strategy_that_raises_when_initialized_is_skipped() -> None:
    class FailsToInitialize(StreamGraphOptimizationStrategy):
        def initialize(self, context: Any) -> Never:
            raise ZeroDivisionError("at once")

        def on_operators_finished(self, finished: Any, context: Any) -> Never:
            raise AssertionError("is not called")

    job = StrategyHarness([FailsToInitialize], "1 #> 2", skips=True)
    assert job.finish(1, measured(1)) == ["n2"]
    assert job.chosen(DecisionKind.STRATEGY) == ["skipped"]


def test_the_harness_raises_the_error_of_a_strategy() -> None:
    job = StrategyHarness([Breaks], "1 #> 2\n2 #> 3")
    with pytest.raises(RuntimeError, match="no luck"):
        job.finish(1, measured(1))


def test_a_strategy_that_never_settles_is_named() -> None:
    job = StrategyHarness([Limits, Restless], "1 #> 2\n2 #> 3", {})
    with pytest.raises(OptimizerError, match="Restless still changes the job"):
        job.finish(1, measured(1))


def test_user_strategies_come_after_the_default_ones() -> None:
    config = Configuration.load({KEY: f"{__name__}.Limits, {__name__}.Breaks"})
    instance = Restless()
    strategies = strategies_of(config, [instance, Limits])
    assert list(map(type, strategies)) == [*DEFAULT_STRATEGIES, Limits, Breaks, Restless, Limits]
    assert strategies[-2] is instance


def limit_to_three(finished: Any, context: Any) -> Any:
    return Limits().on_operators_finished(finished, context)


class Flip469Strategy:
    def maybe_optimize_stream_graph(self, finished: Any, context: Any) -> Any:
        return limit_to_three(finished, context)


class Flip469Subclass(StreamGraphOptimizationStrategy):
    def maybe_optimize_stream_graph(self, finished: Any, context: Any) -> Any:
        return limit_to_three(finished, context)


class Undefined(StreamGraphOptimizationStrategy):
    pass


CALLABLES: list[Any] = [limit_to_three, lambda finished, context: limit_to_three(finished, context)]
CALLABLES += [Flip469Strategy, Flip469Strategy(), Flip469Subclass, Flip469Subclass()]
IDS = ["function", "lambda", "class", "object", "subclass", "object of a subclass"]


@pytest.mark.parametrize("strategy", CALLABLES, ids=IDS)
def test_functions_and_objects_with_the_method_of_flip_469_are_strategies(strategy: Any) -> None:
    check_strategies([strategy])
    job = StrategyHarness([strategy], "1 #> 2\n2 #> 3")
    job.finish(1, measured(1))
    assert job.graph.node(2).max_parallelism == 3


@pytest.mark.parametrize("strategy", CALLABLES, ids=IDS)
def test_a_function_that_raises_is_skipped_under_its_name(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "on_operators_finished", lambda *_: 1 / 0)
    job = StrategyHarness([strategy], "1 #> 2", skips=True)
    job.finish(1, measured(1))
    (decision,) = job.decisions
    name = strategy.__name__ if hasattr(strategy, "__name__") else type(strategy).__name__
    assert str(decision) == f"{name}: skipped, as it raised ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    "invalid",
    [[int], [3], ["Limits"], [object()], [None], limit_to_three, [Undefined], [Undefined()]],
    ids=[
        "a type",
        "a number",
        "a text",
        "an object",
        "nothing",
        "not in a list",
        "a subclass without a method",
        "an object without a method",
    ],
)
def test_invalid_strategies_are_refused(invalid: Any) -> None:
    with pytest.raises(ArgumentError, match="strategies"):
        check_strategies(invalid)


@pytest.mark.parametrize("name", ["limit_to_three", "Flip469Strategy"])
def test_the_option_may_name_a_function_or_a_class_with_the_method_of_flip_469(name: str) -> None:
    *_, strategy = strategies_of(Configuration.load({KEY: f"{__name__}.{name}"}), [])
    assert strategy.name == name


@pytest.mark.parametrize(
    "path", ["nowhere.Strategy", f"{__name__}.Missing", f"{__name__}.KEY", "nothing", f"{__name__}.Undefined"]
)
def test_import_paths_without_a_strategy(path: str) -> None:
    with pytest.raises(ConfigError, match="strateg"):
        strategies_of(Configuration.load({KEY: path}), [])
