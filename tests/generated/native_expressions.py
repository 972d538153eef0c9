"""Expressions over odd tables that DuckDB computes mostly: conditions, values, aggregates, and several that differ little."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.generated.odd_tables import OddTable
from tests.native.expressions import VALUES, Generator

WHOLE = ("tinyint", "smallint", "int", "bigint")
EXACT = (*WHOLE, "decimal")
KEYS = (*EXACT, "date", "string", "boolean")
"""Types that DuckDB compares: the others are Spark's."""
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
"""More than Spark prints of the arguments of an expression."""


@dataclass
class Source:
    """What a query reads: the columns of its FROM clause, by their SQL, and the table of its subqueries."""

    rng: random.Random
    columns: dict[str, str]
    flavours: dict[str, str]
    other: OddTable

    def of(self, *types: str) -> list[str]:
        return [name for name, there in self.columns.items() if there in types or there.partition("(")[0] in types]

    def column(self, *types: str, small: bool = False) -> str | None:
        """Draw a column; a small one has no extremes, so that sums of it fit."""
        found = self.of(*types)
        if small:
            found = [name for name in found if self.flavours.get(name) not in {"extreme", "infinite", "old"}]
        return self.rng.choice(found) if found else None

    def literal(self, kind: str) -> str:
        return f"cast({self.rng.choice(LITERALS[kind])} as {kind})" if kind in LITERALS else f"cast(null as {kind})"

    # -- values of other queries ---------------------------------------------------------------------------------

    def scalar(self, kind: str) -> str | None:
        """Return a subquery of one value of a type."""
        rng = self.rng
        found = self.other.of(kind)
        if not found:
            return None
        column = rng.choice(found)
        function = rng.choice(["max", "min", "max", "min", "any_value"] if rng.random() < 0.03 else ["max", "min"])
        return f"(select {function}(z.{column}) from {{b}} z{self.inner()})"

    def inner(self) -> str:
        """Return a condition of a subquery, or none."""
        column = self.rng.choice(self.other.of(*KEYS))
        kind = self.other.columns[column]
        operator = self.rng.choice(["<", ">", "<>", "="])
        return self.rng.choice(
            ["", f" where z.{column} is not null", f" where z.{column} {operator} {self.literal(kind)}"]
        )

    def listed(self) -> str:
        """Return a condition with IN or EXISTS."""
        rng = self.rng
        for column in rng.sample(self.of(*KEYS), len(self.of(*KEYS))):
            found = self.other.of(self.columns[column])
            if found:
                other = rng.choice(found)
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
        # Spark's own explanation of a plan fails where a subquery and a literal of these types stand in a list.
        listed = self.literal(kind) if kind.startswith(("date", "decimal")) else value
        if kind == "string" and rng.random() < 0.4:
            pattern = rng.choice(["%", "a%", "%b", "_", "%x, y%", "%''%", '%"%', ""])
            return f"{column} like '{pattern}'"
        return rng.choices(
            [
                f"{column} {operator} {value}",
                f"{column} is null",
                f"{column} in ({listed}, {self.literal(kind)})",
                f"{column} between {self.literal(kind)} and {value}",
            ],
            [5, 1, 1, 1],
        )[0]

    def day(self) -> str:
        """Return a comparison of a date with one that a subquery finds."""
        column = self.column("date")
        value = self.scalar("date")
        if column is None or value is None:
            return self.simple()
        return f"{column} {self.rng.choice(['=', '<', '<=', '>', '>=', '<>'])} {value}"

    def condition(self) -> str:
        """Return a condition."""
        draw = self.rng.random()
        if draw < 0.15:
            return self.listed()
        if draw < 0.2:
            return self.day()
        if draw < 0.35:
            return self.deep("boolean", 2)
        return self.simple()

    def deep(self, kind: str, depth: int) -> str:
        """Return a nested expression, in which arithmetic is rare."""
        known = {name: there for name, there in self.columns.items() if there in VALUES and there != "double"}
        return Generator(self.rng, known).of(kind, depth)

    def value(self) -> tuple[str, str]:
        """Return a value to group by or to sum up, and its type."""
        rng = self.rng
        day, text, number = self.column("date"), self.column("string"), self.column(*EXACT, small=True)
        choices: list[tuple[str, str]] = [(c, self.columns[c]) for c in rng.sample(self.of(*KEYS), 3)]
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
        """Return an aggregate."""
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
        whole, exact = self.column(*WHOLE, small=True), self.column(*EXACT, small=is_small)
        if exact:
            # What is left of an average of large whole numbers that cancel out depends on the order of the rows.
            calls += [f"avg({exact})"] if is_small or self.columns[exact] != "bigint" else []
            calls += [
                f"sum({exact})",
                f"sum(distinct {exact})",
                f"sum(if({self.simple()}, {exact}, null))",
            ]
        if whole:
            calls += [
                f"sum({whole} + 1)",
                f"avg({whole}) + 1",
                f"sum({whole} * {whole})",
                f"sum({whole}) / count({whole})",
            ]
        if kind == "date":
            calls += [f"max(year({value}))", f"min(day({value}))", f"year(max({value}))"]
        calls += [
            f"sum(if({self.condition()}, 1, 0))",
            f"count_if({self.simple()})",
            f"count(*) filter (where {self.simple()})",
        ]
        return rng.choice(calls)

    def alike(self, count: int) -> list[str]:
        """Return aggregates that differ in one place, and that print alike perhaps."""
        rng = self.rng
        hole, isnt_condition = self._hole(count)
        if isnt_condition:
            around = rng.choice(
                ["max({})", "min({})", "count(distinct {})", "sum(if({} = 'ax', 1, 0))", "max(upper({}))"]
            )
        else:
            around = rng.choice(
                [
                    "sum(if({}, 1, 0))",
                    "count(case when {} then 1 end)",
                    "count_if({})",
                    "max(if({}, 2, 1))",
                    "count(*) filter (where {})",
                ]
            )
        return [around.replace("{}", one, 1) for one in hole]

    def _hole(self, count: int) -> tuple[list[str], bool]:
        rng = self.rng
        draw = rng.random()
        text = self.column("string")
        if draw < 0.45 or text is None:
            column = self.column(*EXACT, "date", "string")
            kind = self.columns[column]
            operator = rng.choice(["=", "<", ">", ">=", "<>"])
            return [f"{column} {operator} {self.scalar(kind) or self.literal(kind)}" for _ in range(count)], False
        if draw < 0.65:
            return [f"concat({text}, {one})" for one in rng.sample(_TEXTS, count)], True
        if draw < 0.8:
            lists = rng.sample([one for one in _TEXTS if "cast" not in one], count)
            return [f"{text} in ({one})" for one in lists], False
        place = rng.randrange(26, _ARGUMENTS)
        arguments = [
            [f"'a{n}'" if n != place else f"'b{number}'" for n in range(_ARGUMENTS)] for number in range(count)
        ]
        if draw < 0.9:
            return [f"concat({text}, {', '.join(one)})" for one in arguments], True
        column = self.column(*EXACT) or text
        numbers = [[str(100 + n) if n != place else str(number) for n in range(_ARGUMENTS)] for number in range(count)]
        return [f"{column} in ({', '.join(one)})" for one in numbers] if column != text else [
            f"{text} in ({', '.join(one)})" for one in arguments
        ], False
