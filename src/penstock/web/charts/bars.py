"""Bars in lines of time and in columns, as SVG that takes the width there is: places are in percent."""

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
_MOST_TICKS = 6
_TALL = 13
"""The height of a bar, in pixels."""
_LEAST = 0.35
"""The least width of what is there, in percent."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a chart: its name, its value, the value in words, and where it leads to, if anywhere."""

    name: str
    value: float
    told: str


def time_line(total: float, parts: Iterable[tuple[str, Interval]], height: int = 30) -> str:
    """Return a line of time with bars.

    Parameters
    ----------
    total
        The seconds that the whole width stands for.
    parts
        Bars from back to front: the class, and when it began and ended. Those of class ``idle`` take the whole height.
    height
        In pixels.
    """
    found = [f'<svg class="time" width="100%" height="{height}" aria-hidden="true">']
    for css, (start, end) in parts:
        left = 100 * max(start, 0.0) / total if total else 0.0
        width = min(max(100 * (end - start) / total if total else 0.0, _LEAST), 100.0)
        y, tall, radius = (0.0, height, 0) if css == "idle" else ((height - _TALL) / 2, _TALL, 3)
        found.append(
            f'<rect class="{css}" x="{min(left, 100 - width):.2f}%" width="{width:.2f}%" y="{y:g}" height="{tall}" '
            f'rx="{radius}"/>'
        )
    return "".join([*found, "</svg>"])


def ticks(total: float) -> list[float]:
    """Return the seconds to name on an axis of time."""
    days = _DAY * math.ceil(total / _DAY / _MOST_TICKS)
    step = next((tick for tick in _TICKS if total / tick <= _MOST_TICKS), days)
    return [number * step for number in range(int(total / step) + 1)] if total > 0 else [0.0]


def axis(total: float) -> str:
    """Return the axis of lines of time."""
    found = ['<svg class="axis" width="100%" height="18" aria-hidden="true">']
    for at in ticks(total):
        place = 100 * at / total if total else 0.0
        anchor = "start" if place < 4 else "end" if place > 96 else "middle"
        found.append(f'<text x="{place:.2f}%" y="13" text-anchor="{anchor}">{_tick(at)}</text>')
    return "".join([*found, "</svg>"])


def _tick(at: float) -> str:
    if at >= 2 * _DAY:
        return f"{at / _DAY:g} d"
    if at >= 3600:
        return f"{at / 3600:g} h"
    if at >= 120:
        return f"{at / 60:g} min"
    return f"{round(at, 2):g} s"


def columns(values: Sequence[Column], height: int = 120) -> str:
    """Return columns side by side, the highest with its value, and three of them with their names."""
    highest = max((one.value for one in values), default=0.0) or 1.0
    slot = 100 / max(len(values), 1)
    above, below = 16, 22
    room = height - above - below
    found = [f'<svg class="columns" width="100%" height="{height}" role="img" aria-label="{escape(_told(values))}">']
    top = next((number for number, one in enumerate(values) if one.value == highest), None)
    named = {0, len(values) - 1, (len(values) - 1) // 2}
    for number, one in enumerate(values):
        tall = max(room * one.value / highest, 1.0 if one.value else 0.0)
        found.append(
            f'<rect x="{(number + 0.12) * slot:.2f}%" width="{0.76 * slot:.2f}%" y="{above + room - tall:.1f}" '
            f'height="{tall:.1f}" rx="2"><title>{escape(f"{one.name}: {one.told}")}</title></rect>'
        )
        at, anchor = (number + 0.5) * slot, "middle"
        if len(values) > 3:
            at, anchor = {0: (0.0, "start"), len(values) - 1: (100.0, "end")}.get(number, (at, anchor))
        texts = [(height - 6, one.name)] * (number in named) + [(above - 5, one.told)] * (number == top)
        found += (f'<text x="{at:.2f}%" y="{y}" text-anchor="{anchor}">{escape(text)}</text>' for y, text in texts)
    return "".join([*found, "</svg>"])


def _told(values: Sequence[Column]) -> str:
    return ", ".join(f"{one.name}: {one.told}" for one in values)
