"""The process that runs pipelines; it prints an event as a line of JSON for the process of the command."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from tests.generated.compare import figures
from tests.generated.pipelines import random_native_spec, random_spec
from tests.generated.shrink import shrink
from tests.support.native import compute_all_natively


def report_event(**event) -> None:
    sys.__stdout__.write(json.dumps(event, default=str) + "\n")
    sys.__stdout__.flush()


def work(request: dict) -> None:
    """Run the pipelines of a request: seeds, template, modes, and further options of the command."""
    from tests.generated.runner import Runner
    from tests.generated.session import make_session

    folder = Path(request["folder"])
    compute_all_natively(pytest.MonkeyPatch())  # in pipelines with native execution
    runner = Runner(make_session(folder), folder, verify=request["verify"], limit=request["limit"])
    report_event(event="ready")
    shrink_counts: dict[str, int] = {}
    for seed in request["seeds"]:
        report_event(event="start", seed=seed)
        started = time.monotonic()
        spec = (random_native_spec if request["native"] else random_spec)(seed, request["template"], request["modes"])
        report = runner.run(spec)
        used = [step["op"] for step in spec["steps"]] + [
            *spec["settings"],
            *(f"result: {r['kind']}" for r in spec["results"]),
        ]
        report_event(
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
        for difference in report.differences:
            small = {**spec, "modes": [difference.mode]}
            about = figures(difference.expected, difference.actual)
            report_event(
                event="difference",
                seed=seed,
                template=spec["template"],
                mode=difference.mode,
                kind=difference.kind,
                spec=small,
                figures=about,
            )
            same_class = f"{spec['template']} {difference.kind}" if spec["template"] != "uniform" else difference.kind
            if (
                request["shrink"]
                and difference.kind != "hang"
                and not report.stuck
                and shrink_counts.get(same_class, 0) < request["shrink_each"]
            ):
                shrink_counts[same_class] = shrink_counts.get(same_class, 0) + 1
                small, about = smallest(runner, small, difference.kind, request["shrink"])
                report_event(
                    event="shrunk",
                    seed=seed,
                    template=spec["template"],
                    mode=difference.mode,
                    kind=difference.kind,
                    spec=small,
                    figures=about,
                )
                break
        if report.stuck:
            report_event(event="stuck", seed=seed)
            break
    report_event(event="end")
    os._exit(0)


def smallest(runner, spec: dict, kind: str, seconds: float) -> tuple[dict, str]:
    """Shrink a failing specification, and return it with the figures of its difference."""
    kind = kind.split(" of result", maxsplit=1)[0]

    def find_difference(candidate: dict):
        report = runner.run(candidate)
        report_event(event="alive")
        return next((d for d in report.differences if _is_same_kind(d.kind, kind)), None)

    def types(candidate: dict) -> list[dict[str, str]]:
        return [{f.name: f.dataType.simpleString() for f in df.schema} for df in runner.frames(candidate)]

    small = shrink(spec, lambda candidate: find_difference(candidate) is not None, types, seconds)
    last = find_difference(small)
    return (small, figures(last.expected, last.actual)) if last else (spec, "the difference did not occur again")


def _is_same_kind(kind: str, expected: str) -> bool:
    rows = {"rows", "row count"}
    return kind == expected or (kind.split(" of result", maxsplit=1)[0] in rows and expected in rows)


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
