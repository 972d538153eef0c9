"""Strategies that change the pending part of a running job. They do not use Spark."""

from penstock.optimizer.strategy import (
    OperatorsFinished,
    OperatorsRunning,
    Resources,
    ResultInfo,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)

__all__ = [
    "OperatorsFinished",
    "OperatorsRunning",
    "Resources",
    "ResultInfo",
    "StrategyContext",
    "StreamGraphOptimizationStrategy",
]
