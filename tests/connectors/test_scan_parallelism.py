from __future__ import annotations

from typing import Any

import pytest

from penstock.config.options import DEFAULT_SOURCE_PARALLELISM, MAX_PARALLELISM
from penstock.connectors.scan_parallelism import ScanOptions, SourceBounds, choose_scan_parallelism, is_asked, limited

JOB = SourceBounds(128)
EVERYWHERE = SourceBounds(4, everywhere=4, job_from="parallelism.default")
"""``parallelism.default`` is the job's bound as well where no other is set."""


@pytest.mark.parametrize(
    ("options", "static", "inferred", "bounds", "expected", "why"),
    [
        (ScanOptions(parallelism=500), 3, -1, EVERYWHERE, 500, "parallelism is set to 500"),  # the user wins, unclamped
        (ScanOptions(), 3, -1, EVERYWHERE, 3, "fixed by the connector"),
        (ScanOptions(), None, 7, JOB, 7, "the source asks for 7 tasks"),
        (ScanOptions(infer_max=5), None, 7, JOB, 5, "scan.infer-parallelism.max is 5"),
        (ScanOptions(infer_max=50), None, 7, JOB, 7, "the source asks for 7 tasks"),
        (ScanOptions(), None, -1, JOB, 128, "gave no number, so the upper bound of 128 applies (Penstock's default)"),
        (ScanOptions(), None, 0, EVERYWHERE, 4, "so the upper bound of 4 applies (parallelism.default)"),
        (ScanOptions(infer=False), None, -1, EVERYWHERE, 4, "so the default of 4 applies (parallelism.default)"),
        (ScanOptions(infer=False), None, -1, SourceBounds(9, everywhere=9, vertex=3, step=3), 3, "step's maximum is 3"),
        (ScanOptions(infer=False), None, -1, SourceBounds(9, everywhere=9, vertex=3), 9, "default of 9 applies"),
        (ScanOptions(infer=False, infer_max=2), None, -1, JOB, 128, "default of 128 applies (Penstock's default)"),
        (ScanOptions(), None, -1, SourceBounds(128, default=50), 50, f"applies ({DEFAULT_SOURCE_PARALLELISM.key})"),
        (ScanOptions(), None, -1, SourceBounds(128, vertex=9, vertex_from="x"), 9, "upper bound of 9 applies (x)"),
        # a source that ignores the bound it is asked with gets no more than that bound
        (
            ScanOptions(),
            None,
            700,
            JOB,
            128,
            "the source asks for 700 tasks, but the job's maximum is 128 (Penstock's default)",
        ),
        (ScanOptions(), None, 700, SourceBounds(128, default=5), 5, f"sources is 5 ({DEFAULT_SOURCE_PARALLELISM.key})"),
        (ScanOptions(), None, 700, SourceBounds(128, default=200), 200, f"is 200 ({DEFAULT_SOURCE_PARALLELISM.key})"),
        (ScanOptions(), None, 700, SourceBounds(128, default=5, vertex=300, step=300), 5, "maximum for sources is 5"),
        (ScanOptions(), None, 700, SourceBounds(128, default=200, vertex=300, step=300), 200, "for sources is 200"),
        (ScanOptions(), None, 700, SourceBounds(128, default=400, vertex=300, step=300), 300, "step's maximum is 300"),
        (ScanOptions(), None, 700, SourceBounds(128, vertex=300, step=300), 128, "the job's maximum is 128"),
        (ScanOptions(infer_max=9), None, 700, SourceBounds(128, default=5), 5, "the maximum for sources is 5"),
        (ScanOptions(kind_max=1000), None, 700, SourceBounds(128, default=5), 5, "the maximum for sources is 5"),
        (ScanOptions(), None, 700, SourceBounds(128, vertex=9), 9, f"this step's maximum is 9 ({MAX_PARALLELISM.key})"),
        (ScanOptions(), None, 7, EVERYWHERE, 4, "the job's maximum is 4 (parallelism.default)"),
        # parallelism.default is the last of the bounds: where one of the others is set, it bounds nothing
        (ScanOptions(), None, 20, SourceBounds(4, default=50, everywhere=4), 20, "the source asks for 20 tasks"),
        (ScanOptions(), None, 20, SourceBounds(50, vertex=50, everywhere=4), 20, "the source asks for 20 tasks"),
        (ScanOptions(), None, 70, SourceBounds(50, vertex=50, everywhere=4), 50, "maximum is 50"),
        (ScanOptions(), None, -1, SourceBounds(50, vertex=50, everywhere=4), 50, "the upper bound of 50"),
        # the source's own maximum counts instead of the global parallelism, and below the vertex's
        (ScanOptions(infer_max=50), None, 20, EVERYWHERE, 20, "the source asks for 20 tasks"),
        (ScanOptions(infer_max=50), None, 70, EVERYWHERE, 50, "scan.infer-parallelism.max is 50"),
        (ScanOptions(infer_max=500), None, 700, JOB, 500, "scan.infer-parallelism.max is 500"),
        (ScanOptions(infer_max=50), None, 70, SourceBounds(30, vertex=30), 30, "this step's maximum is 30"),
        (ScanOptions(kind_max=6), None, 70, JOB, 6, "the maximum for this kind of source is 6"),
        (ScanOptions(kind_max=1000), None, 7, EVERYWHERE, 4, "the job's maximum is 4"),
        (ScanOptions(kind_max=6, infer_max=8), None, 70, EVERYWHERE, 6, "the maximum for this kind of source is 6"),
    ],
)
def test_choice(options: Any, static: int | None, inferred: int, bounds: Any, expected: int, why: str) -> None:
    number, reason = choose_scan_parallelism(options, static, inferred, bounds)
    assert number == expected
    assert why in reason


@pytest.mark.parametrize(
    ("bounds", "options", "upper", "asked"),
    [
        (JOB, ScanOptions(), 128, 128),
        (SourceBounds(128, default=200), ScanOptions(), 200, 200),
        (SourceBounds(128, default=200, vertex=64), ScanOptions(), 64, 64),
        (SourceBounds(128, vertex=9), ScanOptions(), 9, 9),
        (EVERYWHERE, ScanOptions(), 4, 4),
        (SourceBounds(4, default=50, everywhere=4), ScanOptions(), 50, 50),
        (SourceBounds(50, vertex=50, everywhere=4), ScanOptions(), 50, 50),
        (EVERYWHERE, ScanOptions(infer_max=8), 4, 8),
        (JOB, ScanOptions(infer_max=500), 128, 500),
        (SourceBounds(128, vertex=30), ScanOptions(infer_max=500), 30, 30),
        (SourceBounds(128, default=10), ScanOptions(infer_max=500), 10, 10),
        (JOB, ScanOptions(kind_max=6), 128, 6),
        (JOB, ScanOptions(kind_max=1000), 128, 128),
    ],
)
def test_bounds(bounds: Any, options: Any, upper: int, asked: int) -> None:
    assert (bounds.upper[0], bounds.asked(options)) == (upper, asked)


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
def test_who_is_asked(options: Any, static: int | None, expected: bool) -> None:
    assert is_asked(options, static) is expected


@pytest.mark.parametrize(
    ("parallelism", "limit", "expected"),
    [(8, None, 8), (8, 100_000, 8), (8, 3999, 3), (8, 1000, 1), (8, 999, 1), (8, 0, 1), (1, 5000, 1)],
)
def test_a_limit_bounds_static_inference(parallelism: int, limit: int | None, expected: int) -> None:
    assert limited(parallelism, limit) == expected
