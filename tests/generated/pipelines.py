"""Random specifications, each determined by a seed."""

from __future__ import annotations

import random

from tests.generated import joins, python_operators  # noqa: F401
from tests.generated.builder import Builder
from tests.generated.code import Spec, prune
from tests.generated.modes import NATIVE_MODES, draw_modes
from tests.generated.native_queries import native_spec
from tests.generated.operators import OPERATORS
from tests.generated.results import finish
from tests.generated.templates import TEMPLATES
from tests.support.services import NO_CODEGEN

SETTINGS = {
    "spark.sql.ansi.enabled": ["false"],
    "spark.sql.session.timeZone": ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"],
    "spark.sql.legacy.timeParserPolicy": ["LEGACY", "CORRECTED"],
    "spark.sql.mapKeyDedupPolicy": ["LAST_WIN"],
    "spark.sql.caseSensitive": ["true"],
    "spark.sql.shuffle.partitions": ["1", "3", "11"],
    "spark.sql.autoBroadcastJoinThreshold": ["-1", "1000"],
    "spark.sql.adaptive.enabled": ["false"],
    "spark.sql.join.preferSortMergeJoin": ["false"],
    "spark.sql.execution.arrow.maxRecordsPerBatch": ["7"],
    "spark.sql.optimizer.excludedRules": ["org.apache.spark.sql.catalyst.optimizer.PushDownPredicates"],
    "spark.sql.requireAllClusterKeysForDistribution": ["true"],
}
INTERPRETED = 0.9
"""Share of pipelines without code generation, because compiling takes most of the time of a small pipeline."""


def random_spec(seed: int, templates: list[str] | None = None, modes: list[str] | None = None) -> Spec:
    """Return the specification of a seed.

    Parameters
    ----------
    templates
        Names of `TEMPLATES`, or ``uniform``, to draw from; None for all.
    modes
        The modes to run in; None to draw two.
    """
    rng = random.Random(seed)
    b = Builder(rng)
    if templates:
        template = rng.choice(templates)
    else:
        template = (
            "uniform" if rng.random() < 0.55 else rng.choices(list(TEMPLATES), [w for _, w in TEMPLATES.values()])[0]
        )
    if template == "uniform":
        _uniform(b)
    else:
        TEMPLATES[template][0](b)
    for key, values in SETTINGS.items():
        if rng.random() < 0.04:
            b.settings.setdefault(key, rng.choice(values))
    if rng.random() < INTERPRETED:
        b.settings = NO_CODEGEN | b.settings
    spec = prune(b.spec(seed))
    spec["template"] = template
    spec["modes"] = draw_modes(rng, 2) if modes is None else modes
    return spec


def random_native_spec(seed: int, templates: list[str] | None = None, modes: list[str] | None = None) -> Spec:
    """Return the specification of a seed, for queries that DuckDB can usually compute.

    Parameters
    ----------
    templates
        Names of `QUERIES` to draw from; None for all.
    modes
        The modes to run in; None to draw one.
    """
    rng = random.Random(seed)
    b = Builder(rng)
    name = native_spec(b, seed, rng.choice(templates) if templates else None)
    if rng.random() < INTERPRETED:
        b.settings.update(NO_CODEGEN)
    spec = prune(b.spec(seed))
    return {**spec, "template": f"native: {name}", "modes": [rng.choice(NATIVE_MODES)] if modes is None else modes}


def _uniform(b: Builder) -> None:
    rng = b.rng
    relation = b.table()
    count = rng.randint(3, 12)
    functions, weights = list(OPERATORS), list(OPERATORS.values())
    done = tries = 0
    while done < count and tries < 60:
        tries += 1
        before = len(b.steps), len(b.relations)
        function = rng.choices(functions, weights)[0]
        if rng.random() < 0.15 and len(b.relations) > 3:  # continue from another step
            relation = rng.choice([r for r in b.relations if r.columns])
        output = function(b, relation)
        if output is None or not output.columns or output.rows > 60_000:
            del b.steps[before[0] :], b.relations[before[1] :]
            continue
        relation = output
        done += 1
    finish(b, relation)
