"""Bars and axes."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from penstock.web.charts.bars import Column, axis, columns, ticks, time_line


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (0.0, [0.0]),
        (0.05, [0.0, 0.01, 0.02, 0.03, 0.04, 0.05]),
        (4.0, [0, 1, 2, 3, 4]),
        (9.0, [0, 2, 4, 6, 8]),
        (100.0, [0, 30, 60, 90]),
        (10_000.0, [0, 1800, 3600, 5400, 7200, 9000]),
        (86_400.0 * 20, [86_400.0 * day for day in (0, 4, 8, 12, 16, 20)]),
    ],
)
def test_ticks(total: Any, expected: Any) -> None:
    assert ticks(total) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("times", "left", "width"),
    [((2.0, 4.0), 20.0, 20.0), ((5.0, 5.0), 50.0, 0.35), ((10.0, 10.0), 99.65, 0.35), ((-1.0, 2.0), 0.0, 30.0)],
)
def test_position_of_a_bar(times: Any, left: float, width: float) -> None:
    line = time_line(10.0, [("run", times)])
    match = re.search(r'class="run" x="([\d.]+)%" width="([\d.]+)%"', line)
    assert match
    assert [float(match[1]), float(match[2])] == [left, width]


def test_empty_charts_are_valid() -> None:
    for picture in (time_line(0.0, [("run", (0.0, 0.0))]), axis(0.0), columns([])):
        ET.fromstring(picture.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1))


def test_columns() -> None:
    chart = columns([Column("1 Nov", 0, "0 jobs"), Column("2 <Nov>", 5, "5 jobs"), Column("3 Nov", 10, "10 jobs")], 138)
    assert [float(height) for height in re.findall(r'height="([\d.]+)" rx', chart)] == [0.0, 50.0, 100.0]
    assert 'aria-label="1 Nov: 0 jobs, 2 &lt;Nov&gt;: 5 jobs, 3 Nov: 10 jobs"' in chart
    assert re.findall(r'<text x="[\d.]+%" y="11" text-anchor="middle">(.*?)</text>', chart) == ["10 jobs"]
