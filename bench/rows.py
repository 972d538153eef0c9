"""Rows of queries, such that those of two engines can be compared."""

from decimal import Decimal


def comparable(rows: list) -> list[str]:
    """Return rows as sorted texts; floats to six digits, as the order of their sums differs from run to run."""

    def text(value: object) -> str:
        if isinstance(value, float):
            return f"{value:.6g}"
        return str(value.normalize() if isinstance(value, Decimal) else value)

    return sorted("|".join(map(text, row)) for row in rows)
