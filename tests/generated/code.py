"""PySpark code of specifications. The printed code is exactly the code that runs.

A specification is plain JSON data::

    {"seed": 7, "settings": {}, "properties": {}, "modes": ["shuffled"],
     "steps": [{"op": "table", "of": [], "python": "table('facts')"},
               {"op": "aggregate", "of": [0], "sql": "select {columns} from {a} group by {keys}",
                "columns": ["k", "sum(v) as v1"], "keys": ["k"]}],
     "results": [{"of": 1, "kind": "rows"}]}

`{a}`, `{b}` ... are the steps in `of`, also in SQL fields; any other name in braces is a field of the step. A list of strings is
joined by commas, ``on`` and ``where`` by AND, so lists can be shortened regardless of their meaning.
"""

from __future__ import annotations

import string
from typing import Any

LETTERS = string.ascii_lowercase
Spec = dict[str, Any]
Step = dict[str, Any]
FIXED = frozenset({"op", "of", "sql", "python"})


class _Fields(dict):
    def __missing__(self, key: str) -> str:
        raise KeyError(f"the step has no field {key!r}")


def _text(name: str, value: Any, *, sql: bool) -> str:
    if isinstance(value, list):
        if sql:
            return (" and " if name in {"on", "where"} else ", ").join(map(str, value))
        return ", ".join(map(repr, value))
    return str(value) if sql else repr(value)


def step_code(step: Step) -> str:
    """Return a step as a Python expression over d0, d1, ..."""
    names = {LETTERS[i]: f"d{number}" for i, number in enumerate(step["of"])}
    if "sql" in step:
        fields = _Fields({key: _text(key, value, sql=True) for key, value in step.items() if key not in FIXED})
        fields |= {letter: f"{{{letter}}}" for letter in names}
        arguments = "".join(f", {letter}={name}" for letter, name in names.items())
        return f"spark.sql({step['sql'].format_map(fields)!r}{arguments})"
    fields = _Fields({key: _text(key, value, sql=False) for key, value in step.items() if key not in FIXED})
    return step["python"].format_map(fields | names)


def program(spec: Spec) -> str:
    """Return the code of a specification, for printing."""
    lines = [f"spark.conf.set({key!r}, {value!r})" for key, value in spec.get("settings", {}).items()]
    lines += [f"spark.sparkContext.setLocalProperty({k!r}, {v!r})" for k, v in spec.get("properties", {}).items()]
    lines += [f"d{number} = {step_code(step)}" for number, step in enumerate(spec["steps"])]
    lines += [
        f"result(d{result['of']}, {', '.join(f'{k}={v!r}' for k, v in result.items() if k != 'of')})"
        for result in spec["results"]
    ]
    return "\n".join(lines)


def prune(spec: Spec) -> Spec:
    """Return the specification without steps that no result needs."""
    needed: set[int] = set()
    pending = [r[key] for r in spec["results"] for key in ("of", "first") if key in r]
    while pending:
        i = pending.pop()
        if i not in needed:
            needed.add(i)
            pending += spec["steps"][i]["of"]
    number = {old: new for new, old in enumerate(sorted(needed))}
    steps = [{**spec["steps"][i], "of": [number[n] for n in spec["steps"][i]["of"]]} for i in sorted(needed)]
    results = [{**r, **{key: number[r[key]] for key in ("of", "first") if key in r}} for r in spec["results"]]
    return {**spec, "steps": steps, "results": results}
