import pytest

from penstock.connectors.scan_parallelism import ScanOptions, choose_scan_parallelism, limited, source_upper_bound


@pytest.mark.parametrize(
    ("options", "static", "inferred", "bound", "default", "expected"),
    [
        (ScanOptions(parallelism=500), 3, 7, 128, 4, 500),  # the user wins, unclamped
        (ScanOptions(), 3, 7, 128, 4, 3),  # static wins over dynamic
        (ScanOptions(), None, 7, 128, None, 7),
        (ScanOptions(), None, 700, 128, None, 700),  # a source that ignores the bound is not clipped
        (ScanOptions(infer_max=5), None, 7, 128, None, 5),
        (ScanOptions(infer_max=50), None, 7, 128, None, 7),
        (ScanOptions(), None, -1, 128, None, 128),
        (ScanOptions(), None, 0, 128, 4, 128),
        (ScanOptions(infer=False), None, 7, 128, 4, 4),
        (ScanOptions(infer=False, infer_max=2), None, 7, 128, None, 128),
    ],
)
def test_choice(options, static, inferred, bound, default, expected):
    number, reason = choose_scan_parallelism(options, static, inferred, bound, default)
    assert number == expected
    assert reason


@pytest.mark.parametrize(
    ("default_source", "global_max", "vertex_max", "expected"), [(None, 128, -1, 128), (200, 128, -1, 200), (200, 128, 64, 64), (None, 128, 9, 9)]
)
def test_upper_bound(default_source, global_max, vertex_max, expected):
    assert source_upper_bound(default_source, global_max, vertex_max) == expected


@pytest.mark.parametrize(
    ("parallelism", "limit", "expected"),
    [(8, None, 8), (8, 100_000, 8), (8, 3999, 3), (8, 1000, 1), (8, 999, 1), (8, 0, 1), (1, 5000, 1)],
)
def test_a_limit_bounds_static_inference(parallelism, limit, expected):
    assert limited(parallelism, limit) == expected
