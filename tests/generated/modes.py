"""Configurations of Penstock for running pipelines; each forces other decisions."""

from __future__ import annotations

import random

WHOLE = "execution.batch.adaptive.whole-query-threshold"
VOLUME = "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task"
STRATEGY = "table.optimizer.adaptive-broadcast-join.strategy"
THRESHOLD = "table.optimizer.join.broadcast-threshold"
FILTERING = "table.optimizer.dynamic-filtering"
SKEW = "table.optimizer.skewed-join-optimization"

NATIVE = "execution.native"

MOST = "execution.batch.adaptive.auto-parallelism.max-parallelism"

TINY = {VOLUME: "1 kb", MOST: 12}
"""Several tasks with several subpartitions each; with one each, rows in a wrong partition would not be noticed."""
SHUFFLED = {WHOLE: 0, THRESHOLD: "-1", STRATEGY: "RUNTIME_ONLY"}
SPLIT = {f"{SKEW}.skewed-threshold": "1 b", f"{SKEW}.skewed-factor": 1.0}
FILTERED = {f"{FILTERING}.selectivity": 1.0}

MODES: dict[str, dict[str, object]] = {
    "default": {},
    "planned": {WHOLE: 0, MOST: 8},
    "shuffled": SHUFFLED | TINY,
    "shuffled, one task": SHUFFLED | {MOST: 8},
    "shuffled, few tasks": SHUFFLED | {VOLUME: "4 kb", MOST: 9},
    "shuffled, many tasks": SHUFFLED | {VOLUME: "300 b", MOST: 25},
    "broadcast": {WHOLE: 0, THRESHOLD: "1 gb", **TINY},
    "measured": {WHOLE: 0, STRATEGY: "RUNTIME_ONLY", THRESHOLD: "1 gb", **TINY},
    "eager": {
        WHOLE: 0,
        STRATEGY: "RUNTIME_ONLY",
        THRESHOLD: "4 kb",
        f"{FILTERING}.exact-keys": 20,
        **FILTERED,
        **TINY,
        **SPLIT,
    },
    "filtered": SHUFFLED | FILTERED | {VOLUME: "2 kb", MOST: 10},
    "skewed": SHUFFLED | SPLIT | TINY,
    "skew forced": SHUFFLED | SPLIT | TINY | {f"{SKEW}.strategy": "FORCED"},
    "native, one task": {WHOLE: 1, NATIVE: True},
    "native, many tasks": SHUFFLED | TINY | {NATIVE: True},
    "native, broadcast": {WHOLE: 0, NATIVE: True, MOST: 8},
    "skew forced, planned": {WHOLE: 0, **TINY, **SPLIT, f"{SKEW}.strategy": "FORCED"},
}
NATIVE_MODES = ["native, one task", "native, many tasks"]
"""The modes of pipelines for DuckDB."""
_WEIGHTS = {
    "default": 0.2,
    "planned": 1.5,
    "shuffled, one task": 0.5,
    "shuffled": 3,
    "shuffled, few tasks": 3,
    "broadcast": 2,
    "eager": 2,
    "skew forced": 2,
    "native, one task": 2,
}


def draw_modes(rng: random.Random, count: int) -> list[str]:
    """Draw distinct modes."""
    modes: list[str] = []
    while len(modes) < count:
        (mode,) = rng.choices(list(MODES), [_WEIGHTS.get(mode, 1) for mode in MODES])
        if mode not in modes:
            modes.append(mode)
    return modes
