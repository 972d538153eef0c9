"""Delta tables with deletion vectors: deleted rows are not read, wherever their bitmap is stored."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from pyspark.sql import functions as F

from tests.support.services import require_module

require_module("deltalake", "delta")

import deltalake
import pyarrow as pa

from penstock.connectors import DeltaSink, DeltaSource
from penstock.connectors.core.predicates import Predicate
from penstock.connectors.delta.files import DeltaColumns, files_of
from penstock.errors import SinkError
from tests.connectors.delta.delta_tables import DeltaLog, rows_by_kernel
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


FIELDS = [
    {"name": "id", "type": "long", "nullable": True, "metadata": {}},
    {"name": "name", "type": "string", "nullable": True, "metadata": {}},
    {"name": "kind", "type": "string", "nullable": True, "metadata": {}},
]
DELETED = {"u": [0, 6, 7, 13, 49], "p": range(0, 50, 2), "i": [49]}
"""The positions of deleted rows in a file of 50 rows, by the storage of the bitmap."""
REMAINING = [
    *(("a b", n) for n in range(50) if n not in DELETED["u"]),
    *((None, n) for n in range(50, 100) if n - 50 not in DELETED["p"]),
    *(("é=1", n) for n in range(100, 150) if n - 100 not in DELETED["i"]),
    *(("c/d", n) for n in range(150, 200)),
]


def rows(begin: int, count: int = 50) -> pa.Table:
    ids = range(begin, begin + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [None if n % 9 == 0 else f"n{n}" for n in ids]})


@pytest.fixture
def table(tmp_path: Path) -> DeltaLog:
    """Four files of four partitions. Three have deleted rows; the first was deleted from twice."""
    log = DeltaLog(tmp_path / "t", FIELDS, ["kind"], {"delta.enableDeletionVectors": "true"}, ["deletionVectors"])
    kinds = ["a b", None, "é=1", "c/d"]
    folders = ["kind=a b", "kind=__HIVE_DEFAULT_PARTITION__", "kind=é%3D1", "kind=c%2Fd"]
    added = [
        log.add(rows(50 * number), {"kind": kind}, folder)
        for number, (kind, folder) in enumerate(zip(kinds, folders, strict=True))
    ]
    log.commit(*({"add": action} for action in added))
    log.delete(added[0], [6])
    for action, (storage, deleted) in zip(added, DELETED.items(), strict=False):
        log.delete(action, deleted, storage)
    return log


def expected() -> list[tuple[Any, ...]]:
    return [(n, None if n % 9 == 0 else f"n{n}", kind) for kind, n in REMAINING]


@pytest.mark.parametrize("threshold", ["0", "64 mb"])
def test_rows_in_deletion_vectors_are_not_read(
    make_env: Callable[..., Environment], table: DeltaLog, threshold: str
) -> None:
    env = make_env(**{"execution.batch.adaptive.whole__query__threshold": threshold})
    df = env.read(DeltaSource(str(table.folder)))
    assert_same_rows(env.collect(df), expected())
    assert_same_rows(expected(), [tuple(row.values()) for row in rows_by_kernel(table.folder, "id, name, kind")])
    assert env.count(df) == len(REMAINING)
    filtered = df.where("id between 40 and 60 and kind is null").select("kind")
    assert env.count(filtered) == sum(kind is None and n <= 60 for kind, n in REMAINING)
    assert_same_rows(
        env.collect(df.groupBy("kind").agg(F.count("*"), F.sum("id"))),
        [
            (kind, len(ids), sum(ids))
            for kind in ("a b", None, "é=1", "c/d")
            if (ids := [n for row_kind, n in REMAINING if row_kind == kind])
        ],
    )


@pytest.mark.thorough
def test_older_versions_have_rows_that_were_deleted_later(env: Environment, table: DeltaLog) -> None:
    counts = [env.count(env.read(DeltaSource(str(table.folder), version=version))) for version in range(1, 6)]
    assert counts == [200, 199, 195, 170, 169]


@pytest.mark.thorough
def test_deletion_vectors_apply_across_batches(env: Environment, tmp_path: Path) -> None:
    """Row positions continue across batches, and rows after the last bit of the bitmap are not deleted."""
    log = DeltaLog(tmp_path / "t", FIELDS[:2], [], {"delta.enableDeletionVectors": "true"}, ["deletionVectors"])
    added = log.add(rows(0, 200_000), {})
    log.commit({"add": added})
    deleted = [0, *range(65_530, 65_540), *range(131_071, 131_074)]
    log.delete(added, deleted)
    ids = [row.id for row in env.collect(env.read(DeltaSource(str(log.folder))).select("id"))]
    assert sorted(ids) == sorted(set(range(200_000)) - set(deleted))


@pytest.mark.thorough
@pytest.mark.parametrize(("mode", "count"), [("append", len(REMAINING) + 1), ("overwrite", 1)])
def test_new_rows_are_written_beside_deleted_rows(
    env: Environment, spark: SparkSession, table: DeltaLog, mode: str, count: int
) -> None:
    new = spark.createDataFrame([(1000, "new", "c/d")], "id long, name string, kind string")
    env.write(new, DeltaSink(str(table.folder), mode=mode))
    env.execute()
    assert len(rows_by_kernel(table.folder)) == count
    rows_read = env.collect(env.read(DeltaSource(str(table.folder))))
    assert len(rows_read) == count
    assert (1000, "new", "c/d") in {(row.id, row.name, row.kind) for row in rows_read}


@pytest.mark.parametrize("name", ["kind=é", "kind%3Dx", "kind=*"])
def test_an_overwrite_of_files_that_deltalake_cannot_remove_is_refused(
    env: Environment, spark: SparkSession, table: DeltaLog, name: str
) -> None:
    """deltalake normalises the paths that it removes, so readers would still see a file with another spelling."""
    added = table.add(rows(300), {"kind": "x"}, unquote(name))
    table.commit({"add": added | {"path": f"{name}/{added['path'].rpartition('/')[2]}"}})
    assert env.count(env.read(DeltaSource(str(table.folder)))) == len(REMAINING) + 50
    new = spark.range(1).selectExpr("id", "raise_error('a row was computed') as name", "'x' as kind")
    env.write(new, DeltaSink(str(table.folder), mode="overwrite"))
    with pytest.raises(SinkError, match="cannot be replaced"):
        env.execute()


LARGE = Decimal("9007199254740993.01")


@pytest.mark.parametrize(
    ("predicate", "by", "files"),
    [
        (Predicate("=", "d", (LARGE,)), [], 1),
        (Predicate("<", "d", (LARGE + 1,)), [], 1),
        (Predicate("in", "d", (LARGE,)), [], 1),
        (Predicate("is null", "d"), [], 0),
        (Predicate("=", "d", (LARGE,)), ["d"], 1),
        (Predicate("=", "d", (LARGE + 1,)), ["d"], 0),
    ],
)
def test_inexact_bounds_of_decimals_prune_no_matching_file(
    tmp_path: Path, predicate: Predicate, by: list[str], files: int
) -> None:
    """deltalake stores bounds of decimals as doubles, but partition values exactly."""
    rows = pa.table({"d": pa.array([LARGE], pa.decimal128(18, 2)), "n": [1]})
    deltalake.write_deltalake(str(tmp_path / "t"), rows, partition_by=by or None)
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    assert len(files_of(table, [predicate], DeltaColumns.of(table))) == files
