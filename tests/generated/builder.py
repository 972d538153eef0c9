"""What a pipeline under construction knows of its columns."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.generated.tables import COLUMNS, FLAT, TABLES

KEYS = frozenset({"long", "int", "str", "dec", "date", "ts", "bool", "dbl", "ci", "st"})
"""Kinds by which rows are grouped and joined."""
ORDERABLE = KEYS | {"arr", "iv"}
NUMBERS = frozenset({"long", "int", "dec"})
MOST_ROWS = 25_000


@dataclass(frozen=True)
class Column:
    """A column; `duplicates` is about how many rows have its most frequent value."""

    name: str
    kind: str
    duplicates: int


@dataclass(frozen=True)
class Relation:
    """A step's rows, as far as they are known."""

    index: int
    columns: tuple[Column, ...]
    rows: int

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def of(self, *kinds: str) -> list[Column]:
        return [column for column in self.columns if column.kind in kinds]

    @property
    def total_order(self) -> list[str] | None:
        """Return an order after which only equal rows are tied, None if there is none."""
        if any(column.kind not in ORDERABLE for column in self.columns):
            return None
        return [f"collate({c.name}, 'UTF8_BINARY')" if c.kind == "ci" else c.name for c in self.columns]

    @property
    def is_plain(self) -> bool:
        """Whether equal rows are alike, so that a set operation gives the same whichever it keeps."""
        return all(column.kind in KEYS - {"ci"} for column in self.columns)


class Builder:
    """Adds steps to a specification.

    Parameters
    ----------
    rng
        Every choice is drawn from it.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.steps: list[dict] = []
        self.relations: list[Relation] = []
        self.settings: dict[str, str] = {}
        self.properties: dict[str, str] = {}
        self.results: list[dict] = []
        self._names = 0

    # -- steps ---------------------------------------------------------------------------------------------------

    def add(self, op: str, of, columns, rows: int, /, **fields) -> Relation:
        """Add a step; `columns` are (name, kind) or columns, `fields` what its code needs."""
        made = tuple(c if isinstance(c, Column) else Column(*c, rows) for c in columns)
        self.steps.append({"op": op, "of": [one.index for one in of], **fields})
        relation = Relation(len(self.steps) - 1, made, max(int(rows), 0))
        self.relations.append(relation)
        return relation

    def sql(self, op: str, of, columns, rows: int, text: str, /, **fields) -> Relation:
        return self.add(op, of, columns, rows, sql=text, **fields)

    def python(self, op: str, of, columns, rows: int, text: str, /, **fields) -> Relation:
        return self.add(op, of, columns, rows, python=text, **fields)

    def keep(self, op: str, relation: Relation, text: str, share: float = 1.0, /, **fields) -> Relation:
        """Add a step that leaves the columns as they are."""
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
        return self.narrowed(relation)

    def catalogue(self, name: str) -> Relation:
        """Add a table of Spark's catalogue."""
        kinds = (
            {"k": "long", "c": "str"} if name == "chars" else {n: COLUMNS[n] for n in ("id", "k", "j", "s", "v", "z")}
        )
        columns = [Column(n, kind, {"id": 1, "k": 4}.get(n, 100)) for n, kind in kinds.items()]
        return self.python(
            f"source: {name}", [], columns, 300, "spark.table({name}).select({kept})", name=name, kept=list(kinds)
        )

    def narrowed(self, relation: Relation, most: int = 7) -> Relation:
        """Keep some columns, always k and v, and a number that tells rows apart now and then."""
        rng = self.rng
        others = [c for c in relation.columns if c.name not in {"k", "v"}]
        kept = {"k", "v"} | {c.name for c in rng.sample(others, min(len(others), rng.randint(1, most - 2)))}
        columns = [c for c in relation.columns if c.name in kept]
        names = [c.name for c in columns]
        return self.python("select", [relation], columns, relation.rows, "{a}.selectExpr({columns})", columns=names)

    def other(self, relation: Relation) -> Relation:
        """Return something to meet a relation with: another table, or an earlier step."""
        earlier = [one for one in self.relations if one.columns and one.index != relation.index]
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

    def keys(self, relation: Relation, most: int = 3) -> list[Column]:
        """Draw columns to group by, k more often than others."""
        known = relation.of(*KEYS)
        if not known:
            return []
        k = relation.column("k")
        if k in known and self.chance(0.6):
            others = [c for c in known if c is not k]
            return [k, *self.rng.sample(others, min(len(others), self.rng.choice([0, 0, 0, 1, 2]), most - 1))]
        return self.rng.sample(known, min(len(known), self.rng.randint(1, most)))

    def fresh(self, column: Column, taken) -> Column:
        """Return a column under a name that is not taken."""
        return column if column.name not in taken else replace(column, name=self.name(column.name[0]))
