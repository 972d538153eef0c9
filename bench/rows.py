"""Rows of queries in a form that compares between engines."""

from decimal import Decimal


def comparable(rows: list) -> list[str]:
    """Return rows as sorted strings; floats have six digits, as their sums depend on the order of addition."""

    def text(value: object) -> str:
        if isinstance(value, float):
            return f"{value:.6g}"
        return str(value.normalize() if isinstance(value, Decimal) else value)

    return sorted("|".join(map(text, row)) for row in rows)
