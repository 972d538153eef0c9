from __future__ import annotations

from typing import Any, Never

import pytest

from penstock.config import Configuration
from penstock.decisions import DecisionKind
from penstock.errors import ArgumentError, ConfigError, OptimizerError
from penstock.graph import StreamEdgeUpdateRequest, StreamNodeUpdateRequest
from penstock.graph.partitioner import REBALANCE
from penstock.optimizer import StreamGraphOptimizationStrategy
from penstock.optimizer.given import check_strategies
from penstock.optimizer.optimizer import DEFAULT_STRATEGIES, strategies_of
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


def test_a_strategy_that_raises_is_undone_recorded_and_skipped() -> None:
    job = StrategyHarness([Breaks, Limits], "1 #> 2\n2 #> 3", skips=True)
    job.finish(1, measured(1))
    assert job.edges == {"1 #> 2", "2 #> 3"}
    (decision,) = job.decisions
    assert str(decision) == "Breaks: skipped, as it raised RuntimeError: no luck"
    assert job.graph.node(2).max_parallelism == 3
    job.finish(2, measured(1))
    assert len(job.decisions) == 1


def test_a_strategy_that_raises_at_the_start_is_skipped() -> None:
    class Dies(StreamGraphOptimizationStrategy):
        def initialize(self, context: Any) -> Never:
            raise ZeroDivisionError("at once")

        def on_operators_finished(self, finished: Any, context: Any) -> Never:
            raise AssertionError("is not called")

    job = StrategyHarness([Dies], "1 #> 2", skips=True)
    assert job.finish(1, measured(1)) == ["n2"]
    assert job.chosen(DecisionKind.STRATEGY) == ["skipped"]


def test_a_test_gets_the_error_of_its_strategy() -> None:
    job = StrategyHarness([Breaks], "1 #> 2\n2 #> 3")
    with pytest.raises(RuntimeError, match="no luck"):
        job.finish(1, measured(1))


def test_a_strategy_that_never_settles_is_named() -> None:
    job = StrategyHarness([Limits, Restless], "1 #> 2\n2 #> 3", {})
    with pytest.raises(OptimizerError, match="Restless still changes the job"):
        job.finish(1, measured(1))


def test_the_order() -> None:
    config = Configuration.load({KEY: f"{__name__}.Limits, {__name__}.Breaks"})
    mine = Restless()
    found = strategies_of(config, [mine, Limits])
    assert [type(one) for one in found] == [*DEFAULT_STRATEGIES, Limits, Breaks, Restless, Limits]
    assert found[-2] is mine


def limit_to_three(finished: Any, context: Any) -> Any:
    return Limits().on_operators_finished(finished, context)


class AsTheDesignSpellsIt:
    def maybe_optimize_stream_graph(self, finished: Any, context: Any) -> Any:
        return limit_to_three(finished, context)


OF_ONE_METHOD = [limit_to_three, lambda finished, context: limit_to_three(finished, context)]
OF_ONE_METHOD += [AsTheDesignSpellsIt, AsTheDesignSpellsIt()]


@pytest.mark.parametrize("given", OF_ONE_METHOD, ids=["function", "lambda", "class", "object"])
def test_one_method_is_a_strategy(given: Any) -> None:
    check_strategies([given])
    job = StrategyHarness([given], "1 #> 2\n2 #> 3")
    job.finish(1, measured(1))
    assert job.graph.node(2).max_parallelism == 3


@pytest.mark.parametrize("given", OF_ONE_METHOD, ids=["function", "lambda", "class", "object"])
def test_one_method_that_raises_is_skipped_by_its_name(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "on_operators_finished", lambda *_: 1 / 0)
    job = StrategyHarness([given], "1 #> 2", skips=True)
    job.finish(1, measured(1))
    (decision,) = job.decisions
    name = "AsTheDesignSpellsIt" if "AsThe" in str(given) else given.__name__
    assert str(decision) == f"{name}: skipped, as it raised ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    "given",
    [int, 3, "Limits", object(), None, limit_to_three],
    ids=["a type", "a number", "a text", "an object", "nothing", "a function of two"],
)
def test_what_cannot_be_called_as_a_strategy(given: Any) -> None:
    with pytest.raises(ArgumentError, match="strategies"):
        check_strategies(given if given is limit_to_three else [given])


@pytest.mark.parametrize("name", ["limit_to_three", "AsTheDesignSpellsIt"])
def test_the_option_may_name_what_has_one_method(name: str) -> None:
    found = strategies_of(Configuration.load({KEY: f"{__name__}.{name}"}), [])
    assert found[-1].name == name


@pytest.mark.parametrize("path", ["nowhere.Strategy", f"{__name__}.Missing", f"{__name__}.KEY", "nothing"])
def test_paths_that_lead_nowhere(path: str) -> None:
    with pytest.raises(ConfigError, match="strateg"):
        strategies_of(Configuration.load({KEY: path}), [])
