"""The tables that generated pipelines read: small, skewed, with nulls and strings in mixed case."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.generated.parquet import write

KINDS = {
    "long": "bigint",
    "int": "int",
    "str": "string",
    "ci": "string collate UTF8_LCASE",
    "dbl": "double",
    "dec": "decimal(12,3)",
    "date": "date",
    "ts": "timestamp",
    "bool": "boolean",
    "arr": "array<int>",
    "st": "struct<a:int,b:string>",
    "map": "map<string,int>",
    "var": "variant",
    "iv": "interval day to second",
}
"""The kinds of columns, and their types."""

COLUMNS = {
    "id": "long",
    "k": "long",
    "j": "int",
    "s": "str",
    "c": "ci",
    "v": "long",
    "z": "int",
    "x": "dbl",
    "d": "dec",
    "dt": "date",
    "ts": "ts",
    "b": "bool",
    "a": "arr",
    "st": "st",
    "m": "map",
    "t": "str",
}

_ROWS = """
select id, {key} as k, cast(if(id % 13 = 0, null, id % 20) as int) as j,
  element_at(array('Ab', 'ab', 'AB', 'b', null, 'Zz', 'zZ'), cast(id % 7 + 1 as int)) as s,
  collate(element_at(array('Ab', 'ab', 'AB', 'b', 'B', null), cast(id % 6 + 1 as int)), 'UTF8_LCASE') as c,
  id * 3 % 101 as v, cast(id % 5 as int) as z,
  case when id % 17 = 0 then double('NaN') when id % 19 = 0 then double('-0.0') when id % 23 = 0 then null
       when id % 29 = 0 then double('infinity') else (id % 41) * 0.25d end as x,
  cast(id % 31 * 1.125 as decimal(12,3)) as d, date_add(date'2024-02-25', cast(id % 11 as int)) as dt,
  timestamp'2024-03-30 22:15:00' + make_dt_interval(0, cast(id % 9 as int)) as ts,
  if(id % 7 = 0, null, id % 3 = 0) as b,
  if(id % 8 = 0, null, array(cast(id % 4 as int), cast(id % 3 as int))) as a,
  if(id % 9 = 0, null, named_struct('a', cast(id % 5 as int), 'b', concat('n', id % 6))) as st,
  map('a', cast(id % 4 as int), 'b', cast(id % 6 as int)) as m,
  concat(id % 12 + 1, '/', id % 28 + 1, '/2024') as t
from range(0, {rows}, 1, {parts})
"""


@dataclass(frozen=True)
class Table:
    """The contents of a table; `duplicates` is the number of rows with the most frequent key."""

    rows: int
    key: str
    parts: int
    duplicates: int


TABLES = {
    "facts": Table(600, "if(id % 11 = 0, null, if(id % 10 < 6, 7, id % 97))", 4, 330),
    "large": Table(2500, "if(id % 10 < 6, 7, id % 97)", 8, 1520),
    "small": Table(97, "id", 2, 1),
    "pairs": Table(300, "if(id % 50 = 0, null, id % 97)", 3, 4),
    "dim": Table(20, "id", 1, 1),
    "one": Table(1, "id + 7", 1, 1),
    "empty": Table(0, "id", 1, 1),
}
FORMATS = ("orc", "csv", "json")
"""Further formats of the table `pairs`; the text formats have no nested columns."""
FLAT = [name for name, kind in COLUMNS.items() if kind not in {"arr", "st", "map", "ci"}]
SCHEMA = ", ".join(f"{name} {KINDS[COLUMNS[name]]}" for name in FLAT)
CATALOGUE = {
    "bucketed": (
        "id bigint, k bigint, j int, s string, v bigint, z int",
        "clustered by (k) sorted by (k) into 4 buckets",
    ),
    "by_day": ("id bigint, k bigint, s string, v bigint, z int, j int", "partitioned by (j)"),
    "chars": ("k bigint, c char(5), w varchar(6)", ""),
}
"""Tables of Spark's catalogue: columns and layout."""
SQLITE_NAMES = ("rowid", "oid", "_rowid_", "key")


class Tables:
    """The tables of a Spark session. Their files are shared by all sessions of a machine, because writing them takes long.

    Parameters
    ----------
    spark, scratch
        The session, and a folder for the tables that specifications describe.
    """

    def __init__(self, spark, scratch: Path) -> None:
        self.spark = spark
        self._scratch = scratch
        version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
        shared_folder = Path(tempfile.gettempdir()) / f"generated-tables-{version}"
        if not shared_folder.exists():
            self.folder = Path(tempfile.mkdtemp(prefix="generated-tables-"))
            self._write()
            with suppress(OSError):  # another process was first
                self.folder.rename(shared_folder)
        self.folder = shared_folder
        self._read = {}
        for name in CATALOGUE:
            self._catalogue(name)

    def _rows(self, name: str):
        table = TABLES[name]
        return self.spark.sql(_ROWS.format(key=table.key, rows=table.rows, parts=table.parts))

    def _write(self) -> None:
        for name in TABLES:
            self._rows(name).write.mode("overwrite").parquet(str(self.folder / name))
        flat = self._rows("pairs").select(*FLAT)
        for kind in FORMATS:
            flat.write.mode("overwrite").format(kind).save(str(self.folder / f"pairs_{kind}"))
        texts = self._rows("pairs").selectExpr("concat_ws(',', id, t) as line", "to_json(st) as js", "k", "id")
        texts.write.mode("overwrite").parquet(str(self.folder / "texts"))
        for name in CATALOGUE:
            self._catalogue(name)
            columns = [column.split()[0] for column in CATALOGUE[name][0].split(", ")]
            rows = (
                self._rows("small").selectExpr("k", "substr(s, 1, 2)", "s")
                if name == "chars"
                else self._rows("pairs").select(*columns)
            )
            rows.write.insertInto(name)
        with sqlite3.connect(self.folder / "lite.db") as connection:
            for name in SQLITE_NAMES:
                connection.execute(f"drop table if exists lite_{name}")
                connection.execute(f'create table lite_{name} ("{name}" integer, v integer, s text)')
                rows = [(None if i % 3 == 0 else i, i * 2, f"s{i % 5}" * 20) for i in range(600)]
                connection.executemany(f"insert into lite_{name} values (?, ?, ?)", rows)

    def _catalogue(self, name: str) -> None:
        columns, layout = CATALOGUE[name]
        (self.folder / name).mkdir(exist_ok=True)
        self.spark.sql(f"drop table if exists {name}")
        self.spark.sql(f"create table {name} ({columns}) using parquet {layout} location '{self.folder / name}'")
        if "partitioned" in layout:
            self.spark.sql(f"msck repair table {name}")

    def __call__(self, name: str, kind: str = "parquet"):
        """Return a table as a DataFrame; `name` is one of `TABLES`, or ``texts``."""
        if (name, kind) not in self._read:
            if kind == "parquet":
                self._read[name, kind] = self.spark.read.parquet(str(self.folder / name))
            else:
                reader = self.spark.read.schema(SCHEMA).format(kind)
                self._read[name, kind] = reader.load(str(self.folder / f"{name}_{kind}"))
        return self._read[name, kind]

    def fresh(self, name: str):
        """Return a table with a new reader, as if a program had two readers."""
        return self.spark.read.parquet(str(self.folder / name))

    def odd(
        self, *, columns: list[str], files: list[str], schema: list[str], options: list[str], folder: str, seed: int
    ):
        """Write described Parquet files unless they exist, and return their table; see `odd_tables`."""
        described = json.dumps([columns, files, folder, seed])
        path = self._scratch / hashlib.sha256(described.encode()).hexdigest()[:16] / folder
        if not path.exists():
            write(self.spark, path, columns, files, seed)
        key = json.dumps([described, schema, options, self.spark.conf.get("spark.sql.caseSensitive")])
        if key not in self._read:
            reader = self.spark.read.options(**dict.fromkeys(options, "true"))
            reader = reader.schema(", ".join(schema)) if schema else reader
            self._read[key] = reader.parquet(str(path))
        return self._read[key]

    def lite(self, name: str):
        """Return a table of a SQLite database with a column of this name."""
        url = f"jdbc:sqlite:{self.folder / 'lite.db'}"
        return self.spark.read.format("jdbc").options(url=url, dbtable=f"lite_{name}", driver="org.sqlite.JDBC").load()
