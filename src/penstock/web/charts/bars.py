"""Timelines and column charts as SVG of variable width: horizontal positions are in percent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.web.steps import Interval

_TICK_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 18000, 43200)
"""The possible distances between two ticks, in seconds; for longer jobs, the distance is a number of whole days."""
_DAY = 86400
_MAX_TICKS = 6
_BAR_HEIGHT = 13  # pixels
_MIN_BAR_WIDTH = 0.35  # percent


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a chart: its name, its value, and the formatted value."""

    name: str
    value: float
    text: str


def time_line(total: float, parts: Iterable[tuple[str, Interval]], height: int = 30) -> str:
    """Return a timeline of `total` seconds; `parts` are the CSS classes of its bars, with starts and ends in seconds.

    Later bars cover earlier bars. `height` is in pixels; bars of class ``idle`` have this height.
    """
    elements = [f'<svg class="time" width="100%" height="{height}" aria-hidden="true">']
    for css, (start, end) in parts:
        left = 100 * max(start, 0.0) / total if total else 0.0
        width = min(max(100 * (end - start) / total if total else 0.0, _MIN_BAR_WIDTH), 100.0)
        y, bar_height, radius = (0.0, height, 0) if css == "idle" else ((height - _BAR_HEIGHT) / 2, _BAR_HEIGHT, 3)
        elements.append(
            f'<rect class="{css}" x="{min(left, 100 - width):.2f}%" width="{width:.2f}%" '
            f'y="{y:g}" height="{bar_height}" rx="{radius}"/>'
        )
    return "".join([*elements, "</svg>"])


def ticks(total: float) -> list[float]:
    """Return the times to label on an axis of `total` seconds."""
    days = _DAY * math.ceil(total / _DAY / _MAX_TICKS)
    step = next((step for step in _TICK_STEPS if total / step <= _MAX_TICKS), days)
    return [number * step for number in range(int(total / step) + 1)] if total > 0 else [0.0]


def axis(total: float) -> str:
    """Return the time axis of `total` seconds."""
    elements = ['<svg class="axis" width="100%" height="18" aria-hidden="true">']
    for at in ticks(total):
        x = 100 * at / total if total else 0.0
        anchor = "start" if x < 4 else "end" if x > 96 else "middle"
        elements.append(f'<text x="{x:.2f}%" y="13" text-anchor="{anchor}">{_tick_label(at)}</text>')
    return "".join([*elements, "</svg>"])


def _tick_label(at: float) -> str:
    if at >= 2 * _DAY:
        return f"{at / _DAY:g} d"
    if at >= 3600:
        return f"{at / 3600:g} h"
    if at >= 120:
        return f"{at / 60:g} min"
    return f"{round(at, 2):g} s"


def columns(values: Sequence[Column], height: int = 120) -> str:
    """Return a column chart; the highest column shows its value, and up to three columns show their names."""
    highest = max((column.value for column in values), default=0.0) or 1.0
    slot_width = 100 / max(len(values), 1)  # percent
    top_margin, bottom_margin = 16, 22  # pixels
    max_height = height - top_margin - bottom_margin
    elements = [
        f'<svg class="columns" width="100%" height="{height}" role="img" aria-label="{escape(_aria_label(values))}">'
    ]
    highest_index = next((index for index, column in enumerate(values) if column.value == highest), None)
    named_indexes = {0, len(values) - 1, (len(values) - 1) // 2}
    for index, column in enumerate(values):
        bar_height = max(max_height * column.value / highest, 1.0 if column.value else 0.0)
        elements.append(
            f'<rect x="{(index + 0.12) * slot_width:.2f}%" width="{0.76 * slot_width:.2f}%" '
            f'y="{top_margin + max_height - bar_height:.1f}" height="{bar_height:.1f}" rx="2">'
            f"<title>{escape(f'{column.name}: {column.text}')}</title></rect>"
        )
        x, anchor = (index + 0.5) * slot_width, "middle"
        if len(values) > 3:
            x, anchor = {0: (0.0, "start"), len(values) - 1: (100.0, "end")}.get(index, (x, anchor))
        name = [(height - 6, column.name)] if index in named_indexes else []
        texts = [*name, (top_margin - 5, column.text)] if index == highest_index else name
        elements += (f'<text x="{x:.2f}%" y="{y}" text-anchor="{anchor}">{escape(text)}</text>' for y, text in texts)
    return "".join([*elements, "</svg>"])


def _aria_label(values: Sequence[Column]) -> str:
    return ", ".join(f"{column.name}: {column.text}" for column in values)
