"""Results of a pipeline: rows, sorted rows, several results of a job, files."""

from __future__ import annotations

from tests.generated.builder import Builder, Relation
from tests.generated.expressions import condition
from tests.generated.operators import group, where


def finish(b: Builder, relation: Relation) -> None:
    """Add the results: mostly a single result, sometimes several with a shared part, sorted rows, or files."""
    rng = b.rng
    draw = rng.random()
    if draw < 0.72:
        b.results.append({"of": relation.index, "kind": "rows"})
    elif draw < 0.84:
        for _ in range(rng.choice([2, 3])):
            other = rng.choice(
                [
                    lambda: relation,
                    lambda: where(b, relation),
                    lambda: group(b, relation),
                    lambda: rng.choice(b.relations[1:]),
                ]
            )()
            if other is not None and other.columns:
                b.results.append({"of": other.index, "kind": "rows"})
        if not b.results:
            b.results.append({"of": relation.index, "kind": "rows"})
    elif draw < 0.92 and relation.total_order is not None:
        order = relation.total_order
        rng.shuffle(order)
        ordered = b.keep_columns("sort", relation, "{a}.orderBy(*[F.expr(o) for o in [{order}]])", order=order)
        b.results.append({"of": ordered.index, "kind": "ordered"})
    else:
        writable = [
            c
            for c in relation.columns
            if c.kind in {"long", "int", "str", "dec", "date", "ts", "bool", "dbl", "arr", "st", "fuz", "map"}
        ]
        if len(writable) < 2:
            b.results.append({"of": relation.index, "kind": "rows"})
            return
        files(
            b,
            b.python(
                "select",
                [relation],
                writable,
                relation.rows,
                "{a}.selectExpr({columns})",
                columns=[c.name for c in writable],
            ),
        )


def files(b: Builder, relation: Relation, **fields) -> None:
    """Add a result that is written in some mode, possibly over existing files; `fields` override the random choices."""
    rng = b.rng
    by = [c.name for c in relation.columns if c.kind in {"int", "bool", "date", "str"}]
    result = {
        "of": relation.index,
        "kind": "files",
        "format": rng.choice(["parquet", "parquet", "orc"]),
        "mode": rng.choice(["append", "overwrite", "error", "ignore"]),
        "partition_by": [],
    }
    if by and len(relation.columns) > len(by[:1]) and rng.random() < 0.6:
        result["partition_by"] = [rng.choice(by)]
    if rng.random() < 0.7:
        first = b.keep_columns("filter", relation, "{a}.where({where})", where=condition(b, relation))
        result["first"] = first.index
    if rng.random() < 0.35:
        b.settings["spark.sql.sources.partitionOverwriteMode"] = "dynamic"
    b.results.append(result | fields)
