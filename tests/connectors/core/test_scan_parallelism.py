from __future__ import annotations

from typing import Any

import pytest

from penstock.config.options import DEFAULT_SOURCE_PARALLELISM, MAX_PARALLELISM
from penstock.connectors.core.scan_parallelism import (
    ScanOptions,
    SourceBounds,
    choose_scan_parallelism,
    infers_parallelism,
    limit_parallelism,
)

JOB = SourceBounds(128)
GLOBAL = SourceBounds(4, parallelism_default=4, job_from="parallelism.default")
"""``parallelism.default`` is also the bound of the job if no other bound is set."""


@pytest.mark.parametrize(
    ("options", "static", "inferred", "bounds", "expected", "reason_part"),
    [
        (ScanOptions(parallelism=500), 3, -1, GLOBAL, 500, "parallelism is set to 500"),  # the user wins, unclamped
        (ScanOptions(), 3, -1, GLOBAL, 3, "fixed by the connector"),
        (ScanOptions(), None, 7, JOB, 7, "the source asks for 7 tasks"),
        (ScanOptions(infer_max=5), None, 7, JOB, 5, "scan.infer-parallelism.max is 5"),
        (ScanOptions(infer_max=50), None, 7, JOB, 7, "the source asks for 7 tasks"),
        (ScanOptions(), None, -1, JOB, 128, "gave no number, so the upper bound of 128 applies (Penstock's default)"),
        (ScanOptions(), None, 0, GLOBAL, 4, "so the upper bound of 4 applies (parallelism.default)"),
        (ScanOptions(infer=False), None, -1, GLOBAL, 4, "so the default of 4 applies (parallelism.default)"),
        (
            ScanOptions(infer=False),
            None,
            -1,
            SourceBounds(9, parallelism_default=9, vertex=3, step=3),
            3,
            "step's maximum is 3",
        ),
        (
            ScanOptions(infer=False),
            None,
            -1,
            SourceBounds(9, parallelism_default=9, vertex=3),
            9,
            "default of 9 applies",
        ),
        (ScanOptions(infer=False, infer_max=2), None, -1, JOB, 128, "default of 128 applies (Penstock's default)"),
        (ScanOptions(), None, -1, SourceBounds(128, sources=50), 50, f"applies ({DEFAULT_SOURCE_PARALLELISM.key})"),
        (ScanOptions(), None, -1, SourceBounds(128, vertex=9, vertex_from="x"), 9, "upper bound of 9 applies (x)"),
        # a source that returns more than the bound gets the bound
        (
            ScanOptions(),
            None,
            700,
            JOB,
            128,
            "the source asks for 700 tasks, but the job's maximum is 128 (Penstock's default)",
        ),
        (ScanOptions(), None, 700, SourceBounds(128, sources=5), 5, f"sources is 5 ({DEFAULT_SOURCE_PARALLELISM.key})"),
        (ScanOptions(), None, 700, SourceBounds(128, sources=200), 200, f"is 200 ({DEFAULT_SOURCE_PARALLELISM.key})"),
        (ScanOptions(), None, 700, SourceBounds(128, sources=5, vertex=300, step=300), 5, "maximum for sources is 5"),
        (ScanOptions(), None, 700, SourceBounds(128, sources=200, vertex=300, step=300), 200, "for sources is 200"),
        (ScanOptions(), None, 700, SourceBounds(128, sources=400, vertex=300, step=300), 300, "step's maximum is 300"),
        (ScanOptions(), None, 700, SourceBounds(128, vertex=300, step=300), 128, "the job's maximum is 128"),
        (ScanOptions(infer_max=9), None, 700, SourceBounds(128, sources=5), 5, "the maximum for sources is 5"),
        (ScanOptions(kind_max=1000), None, 700, SourceBounds(128, sources=5), 5, "the maximum for sources is 5"),
        (ScanOptions(), None, 700, SourceBounds(128, vertex=9), 9, f"this step's maximum is 9 ({MAX_PARALLELISM.key})"),
        (ScanOptions(), None, 7, GLOBAL, 4, "the job's maximum is 4 (parallelism.default)"),
        # parallelism.default applies only if no other bound is set
        (
            ScanOptions(),
            None,
            20,
            SourceBounds(4, sources=50, parallelism_default=4),
            20,
            "the source asks for 20 tasks",
        ),
        (
            ScanOptions(),
            None,
            20,
            SourceBounds(50, vertex=50, parallelism_default=4),
            20,
            "the source asks for 20 tasks",
        ),
        (ScanOptions(), None, 70, SourceBounds(50, vertex=50, parallelism_default=4), 50, "maximum is 50"),
        (ScanOptions(), None, -1, SourceBounds(50, vertex=50, parallelism_default=4), 50, "the upper bound of 50"),
        # the maximum of the source overrides parallelism.default, and is limited by that of the vertex
        (ScanOptions(infer_max=50), None, 20, GLOBAL, 20, "the source asks for 20 tasks"),
        (ScanOptions(infer_max=50), None, 70, GLOBAL, 50, "scan.infer-parallelism.max is 50"),
        (ScanOptions(infer_max=500), None, 700, JOB, 500, "scan.infer-parallelism.max is 500"),
        (ScanOptions(infer_max=50), None, 70, SourceBounds(30, vertex=30), 30, "this step's maximum is 30"),
        (ScanOptions(kind_max=6), None, 70, JOB, 6, "the maximum for this kind of source is 6"),
        (ScanOptions(kind_max=1000), None, 7, GLOBAL, 4, "the job's maximum is 4"),
        (ScanOptions(kind_max=6, infer_max=8), None, 70, GLOBAL, 6, "the maximum for this kind of source is 6"),
    ],
)
def test_the_parallelism_of_a_scan_and_its_reason(
    options: Any, static: int | None, inferred: int, bounds: Any, expected: int, reason_part: str
) -> None:
    number, reason = choose_scan_parallelism(options, static, inferred, bounds)
    assert number == expected
    assert reason_part in reason


@pytest.mark.parametrize(
    ("bounds", "options", "upper", "inference_bound"),
    [
        (JOB, ScanOptions(), 128, 128),
        (SourceBounds(128, sources=200), ScanOptions(), 200, 200),
        (SourceBounds(128, sources=200, vertex=64), ScanOptions(), 64, 64),
        (SourceBounds(128, vertex=9), ScanOptions(), 9, 9),
        (GLOBAL, ScanOptions(), 4, 4),
        (SourceBounds(4, sources=50, parallelism_default=4), ScanOptions(), 50, 50),
        (SourceBounds(50, vertex=50, parallelism_default=4), ScanOptions(), 50, 50),
        (GLOBAL, ScanOptions(infer_max=8), 4, 8),
        (JOB, ScanOptions(infer_max=500), 128, 500),
        (SourceBounds(128, vertex=30), ScanOptions(infer_max=500), 30, 30),
        (SourceBounds(128, sources=10), ScanOptions(infer_max=500), 10, 10),
        (JOB, ScanOptions(kind_max=6), 128, 6),
        (JOB, ScanOptions(kind_max=1000), 128, 128),
    ],
)
def test_the_upper_bound_and_the_bound_for_inference(
    bounds: Any, options: Any, upper: int, inference_bound: int
) -> None:
    assert (bounds.upper[0], bounds.inference_bound(options)) == (upper, inference_bound)


@pytest.mark.parametrize(
    ("options", "static", "expected"),
    [
        (ScanOptions(), None, True),
        (ScanOptions(infer_max=3), None, True),
        (ScanOptions(parallelism=3), None, False),
        (ScanOptions(), 3, False),
        (ScanOptions(infer=False), None, False),
    ],
)
def test_sources_with_a_fixed_parallelism_do_not_infer(options: Any, static: int | None, expected: bool) -> None:
    assert infers_parallelism(options, static) is expected


@pytest.mark.parametrize(
    ("parallelism", "limit", "expected"),
    [(8, None, 8), (8, 100_000, 8), (8, 3999, 3), (8, 1000, 1), (8, 999, 1), (8, 0, 1), (1, 5000, 1)],
)
def test_a_limit_bounds_static_inference(parallelism: int, limit: int | None, expected: int) -> None:
    assert limit_parallelism(parallelism, limit) == expected
