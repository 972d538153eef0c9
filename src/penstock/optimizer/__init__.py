"""Strategies that change the part of a running job that has not started. This package does not depend on Spark."""

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
