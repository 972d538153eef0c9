"""Formatting of sizes, counts and durations for users."""

from __future__ import annotations


def show_bytes(size: float) -> str:
    """Return a number of bytes as text, such as ``16.0 MiB``; ``?`` for a negative number, which means unknown."""
    if size < 0:
        return "?"
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def show_count(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun; `plural` is needed if the plural is irregular.

    >>> show_count(1, "task"), show_count(2, "query", "queries")
    ('1 task', '2 queries')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or f'{noun}s'}"


def show_exact_bytes(size: int) -> str:
    """Return a number of bytes in the largest unit in which it is a whole number, such as ``16 MiB``."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size > 0 and size % (1 << power) == 0:
            return f"{size >> power:,} {unit}"
    return f"{size:,} B"


def show_exact_seconds(seconds: float) -> str:
    """Return a duration in the largest unit in which it is a whole number above 1, such as ``30 min``, else in s."""
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds > length and seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"


def show_time(seconds: float) -> str:
    """Return a duration in the form ``0:07`` or ``1:02:07``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_rows(count: int) -> str:
    """Return a number of rows in short form, ``812 rows`` or ``12.3 M rows``."""
    for size, unit in ((10**9, " G"), (10**6, " M"), (10**3, " k")):
        if count >= size:
            return f"{count / size:.1f}{unit} rows"
    return show_count(count, "row")
