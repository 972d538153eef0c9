"""Timelines and column charts as SVG of variable width: horizontal positions are in percent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.web.steps import Interval

_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 18000, 43200)
_DAY = 86400
_MAX_TICKS = 6
_BAR_HEIGHT = 13  # pixels
_MIN_WIDTH = 0.35  # percent, of a bar


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a chart: its name, its value, and the formatted value."""

    name: str
    value: float
    text: str


def time_line(total: float, parts: Iterable[tuple[str, Interval]], height: int = 30) -> str:
    """Return a timeline of `total` seconds with bars, from back to front: CSS class, and start and end in seconds.

    Bars of class ``idle`` have the full height, in pixels.
    """
    elements = [f'<svg class="time" width="100%" height="{height}" aria-hidden="true">']
    for css, (start, end) in parts:
        left = 100 * max(start, 0.0) / total if total else 0.0
        width = min(max(100 * (end - start) / total if total else 0.0, _MIN_WIDTH), 100.0)
        y, bar_height, radius = (0.0, height, 0) if css == "idle" else ((height - _BAR_HEIGHT) / 2, _BAR_HEIGHT, 3)
        elements.append(
            f'<rect class="{css}" x="{min(left, 100 - width):.2f}%" width="{width:.2f}%" '
            f'y="{y:g}" height="{bar_height}" rx="{radius}"/>'
        )
    return "".join([*elements, "</svg>"])


def ticks(total: float) -> list[float]:
    """Return the seconds to label on the time axis."""
    days = _DAY * math.ceil(total / _DAY / _MAX_TICKS)
    step = next((tick for tick in _TICKS if total / tick <= _MAX_TICKS), days)
    return [number * step for number in range(int(total / step) + 1)] if total > 0 else [0.0]


def axis(total: float) -> str:
    """Return the time axis."""
    elements = ['<svg class="axis" width="100%" height="18" aria-hidden="true">']
    for at in ticks(total):
        x = 100 * at / total if total else 0.0
        anchor = "start" if x < 4 else "end" if x > 96 else "middle"
        elements.append(f'<text x="{x:.2f}%" y="13" text-anchor="{anchor}">{_tick(at)}</text>')
    return "".join([*elements, "</svg>"])


def _tick(at: float) -> str:
    if at >= 2 * _DAY:
        return f"{at / _DAY:g} d"
    if at >= 3600:
        return f"{at / 3600:g} h"
    if at >= 120:
        return f"{at / 60:g} min"
    return f"{round(at, 2):g} s"


def columns(values: Sequence[Column], height: int = 120) -> str:
    """Return a column chart; the highest column shows its value, and three columns show their names."""
    highest = max((column.value for column in values), default=0.0) or 1.0
    slot = 100 / max(len(values), 1)
    above, below = 16, 22
    max_height = height - above - below
    elements = [
        f'<svg class="columns" width="100%" height="{height}" role="img" aria-label="{escape(_label(values))}">'
    ]
    top = next((number for number, column in enumerate(values) if column.value == highest), None)
    named = {0, len(values) - 1, (len(values) - 1) // 2}
    for number, column in enumerate(values):
        bar_height = max(max_height * column.value / highest, 1.0 if column.value else 0.0)
        elements.append(
            f'<rect x="{(number + 0.12) * slot:.2f}%" width="{0.76 * slot:.2f}%" '
            f'y="{above + max_height - bar_height:.1f}" height="{bar_height:.1f}" rx="2">'
            f"<title>{escape(f'{column.name}: {column.text}')}</title></rect>"
        )
        at, anchor = (number + 0.5) * slot, "middle"
        if len(values) > 3:
            at, anchor = {0: (0.0, "start"), len(values) - 1: (100.0, "end")}.get(number, (at, anchor))
        texts = [(height - 6, column.name)] * (number in named) + [(above - 5, column.text)] * (number == top)
        elements += (f'<text x="{at:.2f}%" y="{y}" text-anchor="{anchor}">{escape(text)}</text>' for y, text in texts)
    return "".join([*elements, "</svg>"])


def _label(values: Sequence[Column]) -> str:
    return ", ".join(f"{column.name}: {column.text}" for column in values)
