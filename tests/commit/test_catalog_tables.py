"""A table of the catalogue is there with its rows or not at all, wherever the driver dies; the catalogue is a file."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from penstock.commit import Access, catalog_tables
from penstock.commit.catalog_tables import PreparedTable
from penstock.commit.prepared import prepared_of
from penstock.connectors import FileSink
from tests.commit import harness
from tests.commit.checks import steps_of, stopped
from tests.commit.local import LocalSqlite, without_a_jvm
from tests.commit.targets import FILES, Files, Jdbc, Template

if TYPE_CHECKING:
    from penstock.spark.handles import JvmObject

pytestmark = pytest.mark.forks
EVERY = os.environ.get("KILL_POINTS") == "all"
OF_THE_CATALOGUE = ("create_table", "drop_table", "update_statistics")
SCHEMA = StructType([StructField("id", LongType()), StructField("p", LongType())])


class Catalog:
    """What Spark's catalogue does with tables, by a file that outlives a driver."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def tables(self) -> dict[str, str]:
        return json.loads(self.file.read_text()) if self.file.exists() else {}

    def put(self, tables: dict[str, str]) -> None:
        made = self.file.with_suffix(".new")
        made.write_text(json.dumps(tables))
        made.rename(self.file)

    def find_table(self, bridge: Any, name: str) -> Any:
        return SimpleNamespace(name=name) if name in self.tables() else None

    def create_table(self, bridge: Any, statement: str, schema: Any, location: str, *, external: bool) -> None:
        name = statement.split()[2]
        assert schema == SCHEMA
        assert name not in self.tables(), f"{name} exists already"
        self.put({**self.tables(), name: location})

    def drop_table(self, bridge: Any, name: str) -> None:
        tables = self.tables()
        location = tables.pop(name)
        self.put(tables)
        shutil.rmtree(location.removeprefix("file:"))

    def update_statistics(self, bridge: Any, name: str) -> None:
        assert name in self.tables()


class TableFiles(FileSink):
    """The files of a table, and the record that tells the catalogue of it."""

    def open(self, spark: Any) -> Any:
        job = super().open(spark)
        prepare = job.prepare

        def with_table() -> PreparedTable:
            name = f"t{Path(self.path).parent.name}"
            statement = f"CREATE TABLE {name} AS SELECT 1" if self.mode == "error" else ""
            return PreparedTable(name, prepare().as_dict(), statement, SCHEMA.json() if statement else "")

        job.prepare = with_table  # type: ignore[method-assign]
        return job


class Table(Files):
    """A table of the catalogue: without an entry there are no rows."""

    def __init__(self, catalog: Catalog, *args: Any, **facts: Any) -> None:
        super().__init__(*args, **facts)
        self.catalog = catalog
        if facts["exists"]:
            catalog.put({**catalog.tables(), self.entry: str(self.path)})

    @property
    def entry(self) -> str:
        return f"t{self.path.parent.name}"

    def sink(self) -> FileSink:
        found = super().sink()
        return TableFiles(found.path, mode=found.mode, partition_by=found.partition_by, token=found.token)

    def rows(self) -> Any:
        return super().rows() if self.entry in self.catalog.tables() else []


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path / "catalog.json")
    for name in ("find_table", *OF_THE_CATALOGUE):
        monkeypatch.setattr(catalog_tables, name, getattr(made, name))
    steps = [(catalog_tables, name) for name in OF_THE_CATALOGUE]
    monkeypatch.setattr(harness, "STEPS", [*harness.STEPS, *steps])
    return made


@pytest.mark.parametrize("other", ["nothing", "files", "database"])
@pytest.mark.parametrize("case", ["create", "append", "overwrite"])
def test_the_driver_dies_or_a_step_fails(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog, tmp_path: Path, case: str, other: str
) -> None:
    spark = without_a_jvm(monkeypatch, tmp_path)
    template = Template(None, tmp_path / "template")
    numbers = iter(range(100_000))

    def make() -> list[Any]:
        folder = tmp_path / str(next(numbers))
        mode, layout, exists = FILES[case]
        found: list[Any] = [Table(catalog, template, folder, mode, layout, exists=exists, token="t")]
        if other == "files":
            found.append(Files(template, tmp_path / str(next(numbers)), "append", "plain", exists=True, token="t"))
        if other == "database":
            found.append(Jdbc(None, LocalSqlite(f"{folder}.db"), "append", exists=True, token="t"))
        return found

    steps = steps_of(spark, make)
    assert ("create_table" in steps) is (case == "create")
    told = [number for number, step in enumerate(steps) if EVERY or number % 9 == 0 or step in OF_THE_CATALOGUE]
    for number in told:
        for after in (False, True) if EVERY or steps[number] in OF_THE_CATALOGUE else (number % 2 == 0,):
            for how in ("kill", "error"):
                stopped(spark, make, number, after=after, how=how, by="recover")


def test_a_record_survives_its_journal() -> None:
    files = {"kind": "files", "path": "/t", "staging": "/s", "files": ["a"], "made": [""]}
    record = PreparedTable("`t`", files, "CREATE TABLE t", SCHEMA.json(), partitions=("ALTER TABLE t",))
    again = prepared_of(json.loads(json.dumps(record.as_dict())))
    assert again == record
    assert (again.folder, again.added, again.is_atomic) == ("/t", ("/t",), False)


def test_a_table_that_another_session_does_not_know_keeps_its_files(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog, tmp_path: Path, caplog: Any
) -> None:
    without_a_jvm(monkeypatch, tmp_path)
    staging = tmp_path / "staging"
    staging.mkdir()
    (staging / "a").touch()
    files = {"kind": "files", "path": str(tmp_path / "t"), "staging": str(staging), "files": ("a",)}
    bridge: JvmObject | None = None
    PreparedTable("`gone`", files).commit(Access(bridge))  # type: ignore[arg-type]
    assert (tmp_path / "t" / "a").exists()
    assert "has no table `gone`" in caplog.text
