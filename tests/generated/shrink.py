"""Shrinks a failing specification as long as it fails in the same way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from tests.generated.code import FIXED, LETTERS, Spec, prune
from tests.generated.modes import MODES
from tests.generated.odd_tables import quoted

_SINGLY = 5
"""Lists with at most this length are shortened by single elements only, longer lists first by halves."""


def shrink(
    spec: Spec, fails: Callable[[Spec], bool], types: Callable[[Spec], list[dict[str, str]]], seconds: float = 60
) -> Spec:
    """Return the smallest specification that still fails.

    Parameters
    ----------
    spec
        A specification with a single mode, in which it fails.
    fails
        Returns whether another specification fails in the same way.
    types
        Returns the columns of each step with their types.
    seconds
        Limit of the search.
    """
    end = time.monotonic() + seconds
    seen: set[str] = set()
    smaller = True
    while smaller and time.monotonic() < end:
        smaller = False
        try:
            columns = types(spec)
        except Exception:
            columns = []
        for candidate in _candidates(spec, columns):
            text = json.dumps(candidate, sort_keys=True)
            if text in seen or time.monotonic() > end:
                continue
            seen.add(text)
            if fails(candidate):
                spec, smaller = candidate, True
                break
    return spec


def _candidates(spec: Spec, columns: list[dict[str, str]]) -> Iterator[Spec]:
    yield from _without_unused_inputs(spec)
    if len(spec["results"]) > 1:
        for i in range(len(spec["results"])):
            yield prune({**spec, "results": spec["results"][:i] + spec["results"][i + 1 :]})
    for field in ("settings", "properties"):
        for key in spec.get(field, {}):
            yield {**spec, field: {k: v for k, v in spec[field].items() if k != key}}
    for i, result in enumerate(spec["results"]):  # without the last step
        for of in spec["steps"][result["of"]]["of"]:
            yield prune({**spec, "results": [{**r, "of": of} if j == i else r for j, r in enumerate(spec["results"])]})
        for key in set(result) - {"of", "kind", "format", "mode", "partition_by"}:
            changed = {k: v for k, v in result.items() if k != key}
            yield prune({**spec, "results": [changed if j == i else r for j, r in enumerate(spec["results"])]})
    for i in reversed(range(len(spec["steps"]))):
        for of in spec["steps"][i]["of"]:
            yield _without(spec, i, of)
            if columns:
                yield _replace_by_projection(spec, i, of, columns)
    for i, step in enumerate(spec["steps"]):
        for changed in _simpler(step):
            yield {**spec, "steps": [changed if j == i else s for j, s in enumerate(spec["steps"])]}
    yield from _simpler_mode(spec)


def _without(spec: Spec, i: int, of: int) -> Spec:
    """Remove a step; its readers read one of its inputs."""
    steps = [{**s, "of": [of if n == i else n for n in s["of"]]} for s in spec["steps"]]
    results = [{**r, **{key: of for key in ("of", "first") if r.get(key) == i}} for r in spec["results"]]
    return prune({**spec, "steps": steps, "results": results})


def _replace_by_projection(spec: Spec, i: int, of: int, columns: list[dict[str, str]]) -> Spec:
    """Replace a step by a projection of one of its inputs with the same columns."""
    available = columns[of]
    texts = [
        name if available.get(name) == kind else f"cast(null as {kind}) as {name}" for name, kind in columns[i].items()
    ]
    step = {"op": "stand-in", "of": [of], "python": "{a}.selectExpr({columns})", "columns": texts}
    if spec["steps"][i]["op"] == "stand-in":
        return spec
    return prune({**spec, "steps": [step if j == i else s for j, s in enumerate(spec["steps"])]})


def _simpler(step: dict) -> Iterator[dict]:
    for key, value in step.items():
        if key in FIXED:
            continue
        min_length = 0 if key in {"schema", "options"} else 1
        if isinstance(value, list) and len(value) > min_length:
            if len(value) > _SINGLY:
                yield from ({**step, key: part} for part in (value[: len(value) // 2], value[len(value) // 2 :]))
            for j in range(len(value)):
                yield {**step, key: value[:j] + value[j + 1 :]}
        if key == "hint" and value and "sql" in step:
            yield {**step, key: ""}
        if key == "name" and value in {"facts", "large", "pairs"}:
            yield {**step, key: "small"}


def _without_unused_inputs(spec: Spec) -> Iterator[Spec]:
    """Remove inputs that a step does not mention, and columns of described tables that no step mentions."""
    texts = "".join(json.dumps(step, ensure_ascii=False) for step in spec["steps"] if "files" not in step)
    steps = []
    for step in spec["steps"]:
        if "sql" in step and len(step["of"]) > 1 and f"{{{LETTERS[len(step['of']) - 1]}}}" not in json.dumps(step):
            steps.append({**step, "of": step["of"][:-1]})
        elif "files" in step and "schema" in step:
            names = {
                json.dumps(quoted(column.split(" ", 2)[2]), ensure_ascii=False)[1:-1] for column in step["columns"]
            }
            unused = [name for name in names if name not in texts]
            columns = [
                c
                for c in step["columns"]
                if json.dumps(quoted(c.split(" ", 2)[2]), ensure_ascii=False)[1:-1] not in unused
            ]
            schema = [
                c for c in step["schema"] if json.dumps(c, ensure_ascii=False)[1:-1].rpartition(" ")[0] not in unused
            ]
            steps.append({**step, "columns": columns or step["columns"][:1], "schema": schema})
        else:
            steps.append(step)
    if steps != spec["steps"]:
        yield prune({**spec, "steps": steps})


def _simpler_mode(spec: Spec) -> Iterator[Spec]:
    (mode,) = spec["modes"]
    config = MODES[mode] if isinstance(mode, str) else mode
    for key in config:
        fewer = {k: v for k, v in config.items() if k != key}
        if fewer and len(config) > 1:
            yield {**spec, "modes": [fewer]}
