"""Sizes and times as people read them."""

from __future__ import annotations


def show_bytes(size: float) -> str:
    """Return a size such as ``16.0 MiB``; ``?`` for an unknown one."""
    if size < 0:
        return "?"
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def show_count(count: int, noun: str) -> str:
    """Return a count with its noun, ``1 task`` or ``2 tasks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
