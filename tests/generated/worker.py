"""The process that runs pipelines: a line of JSON for each thing that happens, so that another process can watch it."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from tests.generated.compare import figures
from tests.generated.pipelines import random_native_spec, random_spec
from tests.generated.shrink import shrunk
from tests.native.bounds import all_that_can_be


def tell(**event) -> None:
    sys.__stdout__.write(json.dumps(event, default=str) + "\n")
    sys.__stdout__.flush()


def work(order: dict) -> None:
    """Run the pipelines of an order: seeds, template, modes, and what else the command was given."""
    from tests.generated.runner import Runner
    from tests.generated.session import make_session

    folder = Path(order["folder"])
    all_that_can_be(pytest.MonkeyPatch())  # of the pipelines in which DuckDB computes
    runner = Runner(make_session(folder), folder, verify=order["verify"], limit=order["limit"])
    tell(event="ready")
    shrunken: dict[str, int] = {}
    for seed in order["seeds"]:
        tell(event="start", seed=seed)
        started = time.monotonic()
        spec = (random_native_spec if order["native"] else random_spec)(seed, order["template"], order["modes"])
        report = runner.run(spec)
        used = [step["op"] for step in spec["steps"]] + [
            *spec["settings"],
            *(f"result: {r['kind']}" for r in spec["results"]),
        ]
        tell(
            event="done",
            seed=seed,
            template=spec["template"],
            modes=spec["modes"],
            used=sorted(set(used)),
            dropped=report.dropped,
            error=report.error,
            native=report.native,
            seconds=time.monotonic() - started,
            text=report.error if report.dropped.startswith("invalid") else "",
        )
        for found in report.differences:
            small = {**spec, "modes": [found.mode]}
            about = figures(found.expected, found.found)
            tell(
                event="difference",
                seed=seed,
                template=spec["template"],
                mode=found.mode,
                kind=found.kind,
                spec=small,
                figures=about,
            )
            same_class = f"{spec['template']} {found.kind}" if spec["template"] != "uniform" else found.kind
            if (
                order["shrink"]
                and found.kind != "hang"
                and not report.stuck
                and shrunken.get(same_class, 0) < order["shrink_each"]
            ):
                shrunken[same_class] = shrunken.get(same_class, 0) + 1
                small, about = smallest(runner, small, found.kind, order["shrink"])
                tell(
                    event="shrunk",
                    seed=seed,
                    template=spec["template"],
                    mode=found.mode,
                    kind=found.kind,
                    spec=small,
                    figures=about,
                )
                break
        if report.stuck:
            tell(event="stuck", seed=seed)
            break
    tell(event="end")
    os._exit(0)


def smallest(runner, spec: dict, kind: str, seconds: float) -> tuple[dict, str]:
    """Return a failing specification made smaller, and what it gives."""
    kind = kind.split(" of result", maxsplit=1)[0]

    def found(candidate: dict):
        report = runner.run(candidate)
        tell(event="alive")
        return next((d for d in report.differences if _alike(d.kind, kind)), None)

    def types(candidate: dict) -> list[dict[str, str]]:
        return [{f.name: f.dataType.simpleString() for f in df.schema} for df in runner.frames(candidate)]

    small = shrunk(spec, lambda candidate: found(candidate) is not None, types, seconds)
    last = found(small)
    return (small, figures(last.expected, last.found)) if last else (spec, "it was not seen again")


def _alike(kind: str, wanted: str) -> bool:
    rows = {"rows", "row count"}
    return kind == wanted or (kind.split(" of result", maxsplit=1)[0] in rows and wanted in rows)


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
