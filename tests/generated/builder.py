"""Pipelines under construction: their steps, and what is known of the columns of each."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.generated.tables import COLUMNS, FLAT, TABLES

KEYS = frozenset({"long", "int", "str", "dec", "date", "ts", "bool", "dbl", "ci", "st"})
"""Kinds of columns that can be keys of groups and joins."""
ORDERABLE = KEYS | {"arr", "iv"}
NUMBERS = frozenset({"long", "int", "dec"})
MAX_ROWS = 25_000


@dataclass(frozen=True)
class Column:
    """A column; `duplicates` estimates the number of rows with its most frequent value."""

    name: str
    kind: str
    duplicates: int


@dataclass(frozen=True)
class Relation:
    """The estimated output of a step."""

    index: int
    columns: tuple[Column, ...]
    rows: int

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def of_kind(self, *kinds: str) -> list[Column]:
        return [column for column in self.columns if column.kind in kinds]

    @property
    def total_order(self) -> list[str] | None:
        """Return an order in which only equal rows are ties, or None if a column cannot be ordered."""
        if any(column.kind not in ORDERABLE for column in self.columns):
            return None
        return [f"collate({c.name}, 'UTF8_BINARY')" if c.kind == "ci" else c.name for c in self.columns]

    @property
    def is_plain(self) -> bool:
        """Whether equal rows are identical, so that it does not matter which of them a set operation returns."""
        return all(column.kind in KEYS - {"ci"} for column in self.columns)


class Builder:
    """Adds random steps to a specification; `rng` makes all choices."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.steps: list[dict] = []
        self.relations: list[Relation] = []
        self.settings: dict[str, str] = {}
        self.properties: dict[str, str] = {}
        self.results: list[dict] = []
        self._names = 0

    # -- steps ---------------------------------------------------------------------------------------------------

    def add(self, op: str, inputs, columns, rows: int, /, **fields) -> Relation:
        """Add a step; `columns` are (name, kind) or columns, `fields` are inserted in its code."""
        output = tuple(c if isinstance(c, Column) else Column(*c, rows) for c in columns)
        self.steps.append({"op": op, "of": [relation.index for relation in inputs], **fields})
        relation = Relation(len(self.steps) - 1, output, max(int(rows), 0))
        self.relations.append(relation)
        return relation

    def sql(self, op: str, inputs, columns, rows: int, text: str, /, **fields) -> Relation:
        return self.add(op, inputs, columns, rows, sql=text, **fields)

    def python(self, op: str, inputs, columns, rows: int, text: str, /, **fields) -> Relation:
        return self.add(op, inputs, columns, rows, python=text, **fields)

    def keep_columns(self, op: str, relation: Relation, text: str, share: float = 1.0, /, **fields) -> Relation:
        """Add a step that returns a share of the rows with the same columns."""
        return self.python(op, [relation], relation.columns, int(relation.rows * share), text, **fields)

    def name(self, stem: str = "x") -> str:
        self._names += 1
        return f"{stem}{self._names}"

    # -- sources -------------------------------------------------------------------------------------------------

    def table(self, name: str | None = None, kind: str | None = None) -> Relation:
        """Add a source."""
        rng = self.rng
        if name is None:
            name = rng.choices(["facts", "small", "pairs", "dim", "large", "one", "empty"], [6, 5, 5, 3, 2, 1, 0.5])[0]
        facts = TABLES[name]
        if kind is None:
            kind = rng.choice(["orc", "csv", "json"]) if name == "pairs" and rng.random() < 0.3 else "parquet"
        if name == "pairs" and kind == "parquet" and rng.random() < 0.25:
            return self.catalogue(rng.choice(["bucketed", "by_day"]))
        duplicates = {"id": 1, "k": facts.duplicates, "v": max(facts.rows // 40, 1)}
        columns = [
            Column(column, kind_, duplicates.get(column, max(facts.rows // 3, 1)))
            for column, kind_ in COLUMNS.items()
            if kind == "parquet" or column in FLAT
        ]
        extra = {} if kind == "parquet" else {"kind": kind}
        text = "table({name})" if kind == "parquet" else "table({name}, {kind})"
        if rng.random() < 0.15 and kind == "parquet":
            text = "table.fresh({name})"
        relation = self.python(f"source: {kind}", [], columns, facts.rows, text, name=name, **extra)
        return self.select_some(relation)

    def catalogue(self, name: str) -> Relation:
        """Add a table of Spark's catalogue."""
        kinds = (
            {"k": "long", "c": "str"} if name == "chars" else {n: COLUMNS[n] for n in ("id", "k", "j", "s", "v", "z")}
        )
        columns = [Column(n, kind, {"id": 1, "k": 4}.get(n, 100)) for n, kind in kinds.items()]
        return self.python(
            f"source: {name}", [], columns, 300, "spark.table({name}).select({names})", name=name, names=list(kinds)
        )

    def select_some(self, relation: Relation, limit: int = 7) -> Relation:
        """Select k, v and some random other columns."""
        rng = self.rng
        others = [c for c in relation.columns if c.name not in {"k", "v"}]
        selected = {"k", "v"} | {c.name for c in rng.sample(others, min(len(others), rng.randint(1, limit - 2)))}
        columns = [c for c in relation.columns if c.name in selected]
        names = [c.name for c in columns]
        return self.python("select", [relation], columns, relation.rows, "{a}.selectExpr({columns})", columns=names)

    def second_input(self, relation: Relation) -> Relation:
        """Return another input for a step with two inputs: a table, or an earlier step."""
        earlier = [r for r in self.relations if r.columns and r.index != relation.index]
        if earlier and self.rng.random() < 0.35:
            return self.rng.choice(earlier)
        return self.table()

    def spec(self, seed: int) -> dict:
        return {
            "seed": seed,
            "settings": self.settings,
            "properties": self.properties,
            "steps": self.steps,
            "results": self.results,
        }

    # -- choices -------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def keys(self, relation: Relation, limit: int = 3) -> list[Column]:
        """Draw columns to group by, k more often than others."""
        candidates = relation.of_kind(*KEYS)
        if not candidates:
            return []
        k = relation.column("k")
        if k in candidates and self.chance(0.6):
            others = [c for c in candidates if c is not k]
            return [k, *self.rng.sample(others, min(len(others), self.rng.choice([0, 0, 0, 1, 2]), limit - 1))]
        return self.rng.sample(candidates, min(len(candidates), self.rng.randint(1, limit)))

    def rename_if_taken(self, column: Column, used_names) -> Column:
        """Return the column, with another name if its name is taken."""
        return column if column.name not in used_names else replace(column, name=self.name(column.name[0]))
