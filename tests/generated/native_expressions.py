"""Expressions over odd tables, most of which DuckDB computes: conditions, values, aggregates, and similar aggregates."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.generated.aggregates import VALUES, Generator
from tests.generated.odd_tables import OddTable

INTEGERS = ("tinyint", "smallint", "int", "bigint")
EXACT = (*INTEGERS, "decimal")
KEYS = (*EXACT, "date", "string", "boolean")
"""Types that DuckDB compares; Spark compares the others."""
LITERALS = VALUES | {
    "decimal(18,0)": ["0", "-999999999999999999"],
    "decimal(20,0)": ["18446744073709551615", "0"],
    "decimal(38,0)": ["99999999999999999999999999999999999999BD", "-1"],
    "float": ["1.5", "double('NaN')", "-0.0"],
    "date": [
        *["date'1970-01-01'", "date'2024-02-28'", "date'0001-01-01'", "date'0000-12-31'", "date'-0004-02-29'"],
        *["date'1582-10-04'", "date'1582-10-15'", "date'1582-10-10'", "date'+5881580-07-11'", "date'9999-12-31'"],
    ],
    "string": [
        *[
            "''",
            "'a'",
            "'x, y'",
            "'it''s'",
            "'\"q\"'",
            "'é'",
            "'😀'",
            "'%'",
            "'\\\\'",
            "'null'",
            "'a) THEN b'",
            "'scan_0'",
        ],
        *["'A'", "' a '", "'ab'", "'b'", "'c1'"],
    ],
}
_TEXTS = [
    *["'x, y'", "'x', 'y'", "'x', ', ', 'y'", "'x,', ' y'", "'xy'", "'x', ' y'", "''", "'', ''", "'null'"],
    *["cast(null as string)", "'it''s'", "'\"'", "'x)', 'y'", "'1'", "'a, b, c'", "'a', 'b, c'", "'a, b', 'c'"],
]
_ARGUMENTS = 34
"""More arguments than Spark prints of an expression."""


@dataclass
class Source:
    """The input of a query: the columns of its FROM clause (SQL names to types), and the table of its subqueries."""

    rng: random.Random
    columns: dict[str, str]
    flavours: dict[str, str]
    other: OddTable

    def of_type(self, *types: str) -> list[str]:
        return [name for name, kind in self.columns.items() if kind in types or kind.partition("(")[0] in types]

    def column(self, *types: str, small: bool = False) -> str | None:
        """Draw a column, or return None; a small column has no extreme values, so that its sums fit."""
        candidates = self.of_type(*types)
        if small:
            candidates = [name for name in candidates if self.flavours.get(name) not in {"extreme", "infinite", "old"}]
        return self.rng.choice(candidates) if candidates else None

    def literal(self, kind: str) -> str:
        return f"cast({self.rng.choice(LITERALS[kind])} as {kind})" if kind in LITERALS else f"cast(null as {kind})"

    # -- subqueries ----------------------------------------------------------------------------------------------

    def scalar(self, kind: str) -> str | None:
        """Return a scalar subquery of a type, or None."""
        rng = self.rng
        candidates = self.other.of_type(kind)
        if not candidates:
            return None
        column = rng.choice(candidates)
        function = rng.choice(["max", "min", "max", "min", "any_value"] if rng.random() < 0.03 else ["max", "min"])
        return f"(select {function}(z.{column}) from {{b}} z{self.inner()})"

    def inner(self) -> str:
        """Return the WHERE clause of a subquery, or an empty string."""
        column = self.rng.choice(self.other.of_type(*KEYS))
        kind = self.other.columns[column]
        operator = self.rng.choice(["<", ">", "<>", "="])
        return self.rng.choice(
            ["", f" where z.{column} is not null", f" where z.{column} {operator} {self.literal(kind)}"]
        )

    def membership(self) -> str:
        """Return a condition with IN or EXISTS."""
        rng = self.rng
        for column in rng.sample(self.of_type(*KEYS), len(self.of_type(*KEYS))):
            candidates = self.other.of_type(self.columns[column])
            if candidates:
                other = rng.choice(candidates)
                return rng.choice(
                    [
                        f"{column} in (select z.{other} from {{b}} z{self.inner()})",
                        f"{column} not in (select z.{other} from {{b}} z where z.{other} is not null)",
                        f"{column} not in (select z.{other} from {{b}} z)",
                        f"exists (select 1 from {{b}} z where z.{other} = {column})",
                        f"not exists (select 1 from {{b}} z where z.{other} = {column})",
                        f"(exists (select 1 from {{b}} z where z.{other} = {column}) or {self.simple()})",
                    ]
                )
        return self.simple()

    # -- conditions and values -----------------------------------------------------------------------------------

    def simple(self) -> str:
        """Return a comparison of a column."""
        rng = self.rng
        column = self.column(*KEYS)
        kind = self.columns[column]
        operator = rng.choice(["=", "<", "<=", ">", ">=", "<>", "<=>"])
        value = self.scalar(kind) if rng.random() < (0.1 if kind == "date" else 0.4) else None
        if value is None:
            value = self.literal(kind)
        # Spark cannot explain a plan with a list of a subquery and a literal of these types.
        list_value = self.literal(kind) if kind.startswith(("date", "decimal")) else value
        if kind == "string" and rng.random() < 0.4:
            pattern = rng.choice(["%", "a%", "%b", "_", "%x, y%", "%''%", '%"%', ""])
            return f"{column} like '{pattern}'"
        return rng.choices(
            [
                f"{column} {operator} {value}",
                f"{column} is null",
                f"{column} in ({list_value}, {self.literal(kind)})",
                f"{column} between {self.literal(kind)} and {value}",
            ],
            [5, 1, 1, 1],
        )[0]

    def date_comparison(self) -> str:
        """Return a comparison of a date with a scalar subquery."""
        column = self.column("date")
        value = self.scalar("date")
        if column is None or value is None:
            return self.simple()
        return f"{column} {self.rng.choice(['=', '<', '<=', '>', '>=', '<>'])} {value}"

    def condition(self) -> str:
        """Return a random condition."""
        draw = self.rng.random()
        if draw < 0.15:
            return self.membership()
        if draw < 0.2:
            return self.date_comparison()
        if draw < 0.35:
            return self.nested("boolean", 2)
        return self.simple()

    def nested(self, kind: str, depth: int) -> str:
        """Return a nested expression, in which arithmetic is rare."""
        columns = {name: type_ for name, type_ in self.columns.items() if type_ in VALUES and type_ != "double"}
        return Generator(self.rng, columns).of(kind, depth)

    def value(self) -> tuple[str, str]:
        """Return an expression to group or aggregate, and its type."""
        rng = self.rng
        day, text, number = self.column("date"), self.column("string"), self.column(*EXACT, small=True)
        choices: list[tuple[str, str]] = [(c, self.columns[c]) for c in rng.sample(self.of_type(*KEYS), 3)]
        if day:
            choices += [(f"{rng.choice(['year', 'month', 'day'])}({day})", "int")] * 2
            choices += [(f"date_add({day}, {rng.choice([1, -1, 400])})", "date")]
        if text:
            choices += [(f"substring({text}, 1, {rng.choice([0, 1, 2])})", "string"), (f"upper({text})", "string")]
            choices += [(f"concat({text}, {rng.choice(_TEXTS)})", "string")]
            choices += [(f"coalesce({text}, {self.literal('string')})", "string")]
        if number:
            kind = self.columns[number]
            choices += [(f"if({self.simple()}, {number}, {self.literal(kind)})", kind)]
            choices += [(f"({number} {rng.choice('+-*')} {number})", "number")]
        return rng.choice(choices)

    # -- aggregates ----------------------------------------------------------------------------------------------

    def aggregate(self) -> str:
        """Return a random aggregate."""
        rng = self.rng
        value, kind = self.value()
        calls = [
            f"count({value})",
            f"count(distinct {value})",
            f"min({value})",
            f"max({value})",
            f"max({value})",
            "count(*)",
        ]
        is_small = rng.random() < 0.9
        integer, exact = self.column(*INTEGERS, small=True), self.column(*EXACT, small=is_small)
        if exact:
            # The average of large integers that cancel each other out depends on the order of the rows.
            calls += [f"avg({exact})"] if is_small or self.columns[exact] != "bigint" else []
            calls += [
                f"sum({exact})",
                f"sum(distinct {exact})",
                f"sum(if({self.simple()}, {exact}, null))",
            ]
        if integer:
            calls += [
                f"sum({integer} + 1)",
                f"avg({integer}) + 1",
                f"sum({integer} * {integer})",
                f"sum({integer}) / count({integer})",
            ]
        if kind == "date":
            calls += [f"max(year({value}))", f"min(day({value}))", f"year(max({value}))"]
        calls += [
            f"sum(if({self.condition()}, 1, 0))",
            f"count_if({self.simple()})",
            f"count(*) filter (where {self.simple()})",
        ]
        return rng.choice(calls)

    def similar_aggregates(self, count: int) -> list[str]:
        """Return aggregates that differ in one argument only, and may have the same printed form."""
        rng = self.rng
        arguments, are_strings = self._variants(count)
        if are_strings:
            pattern = rng.choice(
                ["max({})", "min({})", "count(distinct {})", "sum(if({} = 'ax', 1, 0))", "max(upper({}))"]
            )
        else:
            pattern = rng.choice(
                [
                    "sum(if({}, 1, 0))",
                    "count(case when {} then 1 end)",
                    "count_if({})",
                    "max(if({}, 2, 1))",
                    "count(*) filter (where {})",
                ]
            )
        return [pattern.replace("{}", argument, 1) for argument in arguments]

    def _variants(self, count: int) -> tuple[list[str], bool]:
        """Return similar expressions, and whether they are strings instead of conditions."""
        rng = self.rng
        draw = rng.random()
        text = self.column("string")
        if draw < 0.45 or text is None:
            column = self.column(*EXACT, "date", "string")
            kind = self.columns[column]
            operator = rng.choice(["=", "<", ">", ">=", "<>"])
            return [f"{column} {operator} {self.scalar(kind) or self.literal(kind)}" for _ in range(count)], False
        if draw < 0.65:
            return [f"concat({text}, {suffix})" for suffix in rng.sample(_TEXTS, count)], True
        if draw < 0.8:
            lists = rng.sample([literals for literals in _TEXTS if "cast" not in literals], count)
            return [f"{text} in ({literals})" for literals in lists], False
        position = rng.randrange(26, _ARGUMENTS)
        arguments = [
            [f"'a{n}'" if n != position else f"'b{number}'" for n in range(_ARGUMENTS)] for number in range(count)
        ]
        if draw < 0.9:
            return [f"concat({text}, {', '.join(texts)})" for texts in arguments], True
        column = self.column(*EXACT) or text
        if column == text:
            return [f"{text} in ({', '.join(texts)})" for texts in arguments], False
        numbers = [
            [str(100 + n) if n != position else str(number) for n in range(_ARGUMENTS)] for number in range(count)
        ]
        return [f"{column} in ({', '.join(values)})" for values in numbers], False
