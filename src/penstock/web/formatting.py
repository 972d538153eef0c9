"""Formatting of figures and names for the web page."""

from __future__ import annotations

import time

from penstock.base.units import show_bytes
from penstock.config import SPARK_PREFIX

_SHORT_UNITS = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
"""The smallest number that a unit is used for, the unit, and its letter."""


def seconds(value: float | None) -> str:
    """Return a duration such as ``1.2 s`` or ``3 min 20 s``; ``?`` for None."""
    if value is None:
        return "?"
    if value < 60:
        return f"{value:.2f} s" if value < 1 else f"{value:.1f} s"
    minutes, remaining_seconds = divmod(int(value), 60)
    return f"{minutes} min {remaining_seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def clock(at: float | None) -> str:
    """Return the local date and time of a time in seconds since the epoch; empty for None."""
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def size(value: float | None) -> str:
    """Return a number of bytes with its unit, such as ``1.5 MiB``; ``?`` for None."""
    return "?" if value is None else show_bytes(value)


def count(value: float | None) -> str:
    """Return a number with all digits; ``?`` for None or a negative number, which means unknown."""
    return "?" if value is None or value < 0 else f"{value:,.0f}"


def short_count(value: float | None) -> str:
    """Return a shortened number, such as ``6.0 M``; ``?`` for None or a negative number."""
    if value is None or value < 0:
        return "?"
    for smallest, unit, letter in _SHORT_UNITS:
        if value >= smallest:
            return f"{value / unit:.1f} {letter}"
    return f"{value:,.0f}"


def rows(value: float | None) -> str:
    """Return a shortened number of rows, such as ``6.0 M rows``."""
    return f"{short_count(value)} row" + ("" if value == 1 else "s")


def percent(part: float, whole: float) -> str:
    """Return a part as a percentage of a whole; ``?`` if the whole is 0."""
    return "?" if whole <= 0 else f"{100 * part / whole:.0f} %"


def setting(option: str) -> str:
    """Return the key with which an option is set in the configuration of Spark."""
    return option if option.startswith("spark.") else SPARK_PREFIX + option


def step_number(vertex_id: str) -> str:
    """Return the number of a step from the id of its vertex."""
    return vertex_id.removeprefix("v")
