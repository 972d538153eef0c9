"""Atomic commits of tables of the catalog, wherever the driver dies; a file stands in for the catalog."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from penstock.commit import Access, catalog_tables, leftovers, recover
from penstock.commit.added_files import PreparedFiles
from penstock.commit.catalog_tables import PreparedTable
from penstock.commit.folders import PreparedFolders
from penstock.commit.journal import journals_at
from penstock.commit.prepared import Prepared, prepared_from_dict, prepared_or_unknown
from penstock.connectors import FileSink
from penstock.errors import CommitError, SinkError
from tests.commit import harness
from tests.commit.checks import journals, run, steps_of, stopped
from tests.commit.harness import Injected, Stop, commit, in_child
from tests.commit.local import LocalFolder, LocalSqlite, as_an_object_store, without_a_jvm
from tests.commit.targets import FILES, Files, Jdbc, Template

if TYPE_CHECKING:
    from penstock.spark.bridge.handles import JvmObject

pytestmark = pytest.mark.forks
EVERY = os.environ.get("KILL_POINTS") == "all"
CATALOG_STEPS = (
    "create_table",
    "drop_table",
    "unmark_table",
    "add_partitions",
    "unregister_partitions",
    "update_statistics",
)
SCHEMA = StructType([StructField("id", LongType()), StructField("p", LongType())])
CASES = (
    "create",
    "create by partition",
    "append",
    "append by partition",
    "overwrite",
    "overwrite by partition",
    "dynamic",
)


class Catalog:
    """A replacement of Spark's catalog: a file that outlives a driver."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def tables(self) -> dict[str, Any]:
        return json.loads(self.file.read_text()) if self.file.exists() else {}

    def put(self, name: str, **facts: Any) -> None:
        self._write(self.tables() | {name: {"mark": "", "partitions": []} | facts})

    def _write(self, tables: dict[str, Any]) -> None:
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps(tables))
        temporary.rename(self.file)

    def find_table(self, bridge: Any, name: str) -> Any:
        table = self.tables().get(name)
        return (
            None
            if table is None
            else SimpleNamespace(name=name, location=table["location"], created=table.get("created", 0))
        )

    def is_marked(self, bridge: Any, name: str, mark: str) -> bool:
        return self.tables().get(name, {}).get("mark") == mark

    def create_table(
        self, bridge: Any, statement: str, schema: str, location: str, mark: str, *, external: bool
    ) -> None:
        name = statement.split()[2]
        assert schema == SCHEMA.json()
        assert name not in self.tables(), f"{name} exists already"
        self.put(name, location=location, mark=mark)

    def unmark_table(self, bridge: Any, name: str, mark: str) -> None:
        if self.is_marked(bridge, name, mark):
            self.put(name, **self.tables()[name] | {"mark": ""})

    def drop_table(self, bridge: Any, name: str) -> None:
        tables = self.tables()
        location = tables.pop(name)["location"]
        self._write(tables)
        shutil.rmtree(location.removeprefix("file:"))

    def add_partitions(self, bridge: Any, name: str, folders: Any) -> None:
        table = self.tables()[name]
        self.put(name, **table | {"partitions": sorted({*table["partitions"], *folders})})

    def unregister_partitions(self, bridge: Any, name: str, folders: Any) -> None:
        table = self.tables()[name]
        self.put(name, **table | {"partitions": sorted({*table["partitions"]} - {*folders})})

    def update_statistics(self, bridge: Any, name: str) -> None:
        assert name in self.tables()


class TableFiles(FileSink):
    """A sink of the files of a table whose record also updates the catalog."""

    def open(self, spark: Any) -> Any:
        job = super().open(spark)
        prepare = job.prepare

        def with_table() -> Prepared | None:
            record = prepare()
            if record is None or job.nothing_to_write is not None:
                return record
            files = record.as_dict()
            listed = set(CATALOGS[-1].tables().get(self.entry, {}).get("partitions", ()))
            written = set(job.partitions)
            is_new = self.mode == "error"
            gone = listed - written if self.mode == "overwrite" and not job.replaces_partitions else set()
            folders = [tuple(sorted(names)) for names in (written, set() if is_new else written - listed, gone)]
            names = ("partitions", "new_partitions", "emptied_partitions")
            statement = f"CREATE TABLE {self.entry} AS SELECT 1" if is_new else ""
            schema = SCHEMA.json() if is_new else ""
            facts: dict[str, Any] = dict(zip(names, folders, strict=True))
            return PreparedTable(self.entry, files, statement, schema, location=self.path, **facts)

        job.prepare = with_table  # type: ignore[method-assign]
        return job

    @property
    def entry(self) -> str:
        return f"t{Path(self.path).parent.name}"


CATALOGS: list[Catalog] = []
"""The catalog of the current test."""


class Table(Files):
    """A table of the catalog, which has no rows without an entry."""

    def __init__(self, catalog: Catalog, *args: Any, **facts: Any) -> None:
        super().__init__(*args, **facts)
        self.catalog = catalog
        if facts["exists"]:
            partitions = sorted(folder.name for folder in self.path.glob("p=*"))
            catalog.put(self.entry, location=str(self.path), partitions=partitions)

    @property
    def entry(self) -> str:
        return f"t{self.path.parent.name}"

    def sink(self) -> FileSink:
        sink = super().sink()
        return TableFiles(
            sink.path, mode=sink.mode, partition_by=sink.partition_by, options=sink.options, token=sink.token
        )

    def rows(self) -> Any:
        entry = self.catalog.tables().get(self.entry)
        rows = super().rows() if entry is not None else []
        return [row for row in rows if self.layout == "plain" or f"p={row[1]}" in entry["partitions"]]

    def is_readable(self, rows: Any) -> bool:
        # The catalog learns of a new table before it learns of its partitions.
        return super().is_readable(rows) or (self.layout == "parts" and not self.old and not rows)


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog(tmp_path / "catalog.json")
    CATALOGS.append(catalog)
    for name in ("find_table", "is_marked", *CATALOG_STEPS):
        monkeypatch.setattr(catalog_tables, name, getattr(catalog, name))
    steps = [(catalog_tables, name) for name in CATALOG_STEPS]
    monkeypatch.setattr(harness, "STEPS", [*harness.STEPS, *steps])
    yield catalog
    CATALOGS.remove(catalog)


@pytest.mark.thorough
@pytest.mark.sample(2)
@pytest.mark.parametrize("other", ["nothing", "files", "database"])
@pytest.mark.parametrize("case", CASES)
def test_the_driver_dies_or_a_step_fails(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog, tmp_path: Path, case: str, other: str
) -> None:
    spark = without_a_jvm(monkeypatch, tmp_path)
    template = Template(None, tmp_path / "template")
    numbers = iter(range(100_000))

    def make() -> list[Any]:
        folder = tmp_path / str(next(numbers))
        mode, layout, exists = FILES[case]
        targets: list[Any] = [Table(catalog, template, folder, mode, layout, exists=exists, token="t")]
        if other == "files":
            targets.append(Files(template, tmp_path / str(next(numbers)), "append", "plain", exists=True, token="t"))
        if other == "database":
            targets.append(Jdbc(None, LocalSqlite(f"{folder}.db"), "append", exists=True, token="t"))
        return targets

    steps = steps_of(spark, make)
    assert ("create_table" in steps) is case.startswith("create")
    assert ("unmark_table" in steps) is case.startswith("create")
    chosen = [number for number, step in enumerate(steps) if EVERY or number % 9 == 0 or step in CATALOG_STEPS]
    for number in chosen:
        for after in (False, True) if EVERY or steps[number] in CATALOG_STEPS else (number % 2 == 0,):
            for how in ("kill", "error"):
                stopped(spark, make, number, after=after, how=how, by="recover")


class Overtaken(Table):
    """A table whose name another program takes for its own table, at another location, during the commit."""

    moment: str = "prepare"

    @property
    def theirs(self) -> Path:
        return self.path.parent / "theirs"

    def make_theirs(self) -> None:
        self.theirs.mkdir(exist_ok=True)
        (self.theirs / "rows").touch()
        self.catalog.put(self.entry, location=str(self.theirs))
        (self.journal_folder / "is theirs").touch()

    def write(self, job: Any) -> None:
        super().write(job)
        methods: list[tuple[Any, str]] = {
            "prepare": [(job, "prepare")],
            "moved": [(PreparedFolders, "commit"), (PreparedFiles, "commit")],
            "create_table": [(catalog_tables, "create_table")],
        }[self.moment]
        for owner, name in methods:
            setattr(owner, name, self.overtaken(getattr(owner, name), name))

    def overtaken(self, original: Any, name: str) -> Any:
        def overtaken(*args: Any, **kwargs: Any) -> Any:
            if name == "create_table":
                self.make_theirs()
            result = original(*args, **kwargs)
            self.make_theirs()
            return result

        return overtaken


class Refused(TableFiles):
    """A sink whose job fails after all other sinks are prepared."""

    def open(self, spark: Any) -> Any:
        job = super().open(spark)

        def fail() -> Any:
            raise Injected("not prepared")

        job.prepare = fail  # type: ignore[method-assign]
        return job


@pytest.mark.sample(3)
@pytest.mark.parametrize("how", ["kill", "error"])
@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("moment", ["prepare", "moved", "create_table"])
def test_a_table_that_another_program_creates_during_the_commit_stays(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog, tmp_path: Path, how: str, store: bool, moment: str
) -> None:
    """Wherever the job dies, fails or notices the table: it must not drop a table that it has not created."""
    spark = without_a_jvm(monkeypatch, tmp_path)
    if store:
        as_an_object_store(monkeypatch)
    template = Template(None, tmp_path / "template")
    noticed = False
    for number in itertools.count():
        target = Overtaken(catalog, template, tmp_path / f"{number}", "create", "plain", exists=False, token=None)
        target.moment = moment
        stop = Stop(number, number % 2 == 0, how)
        end = in_child(spark, lambda target=target, stop=stop: run(spark, [target], stop))
        for path in journals_at(Access(None), LocalFolder(None, str(target.journal_folder))):  # type: ignore[arg-type]
            recover(Access(None), path)  # type: ignore[arg-type]
        if (target.journal_folder / "is theirs").exists():
            entry = catalog.tables()[target.entry]
            assert (entry["location"], entry["mark"]) == (str(target.theirs), ""), number
            assert (target.theirs / "rows").exists(), number
        assert not target.path.exists()
        assert not journals(target), number
        noticed = not end.killed and "Injected" not in str(end.error)
        if noticed:
            assert "exists already" in str(end.error)
            break


def test_a_job_that_fails_in_prepare_drops_no_table(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog, tmp_path: Path
) -> None:
    spark = without_a_jvm(monkeypatch, tmp_path)
    template = Template(None, tmp_path / "template")
    target = Overtaken(catalog, template, tmp_path / "1", "create", "plain", exists=False, token=None)
    sinks = [target.sink(), Refused(str(tmp_path / "2" / "out"))]
    with pytest.raises(Injected):
        commit(spark, sinks, write=lambda sink, job: target.write(job) if sink is sinks[0] else None)  # type: ignore[arg-type]
    assert catalog.tables()[target.entry]["location"] == str(target.theirs)
    assert (target.theirs / "rows").exists()


@pytest.mark.parametrize("theirs", [True, False])
def test_undo_of_an_append_retains_partitions_with_rows_of_other_jobs(
    catalog: Catalog, appended: PreparedTable, tmp_path: Path, theirs: bool
) -> None:
    appended.commit(NO_SESSION)
    assert catalog.tables()["t"]["partitions"] == ["p=0", "p=1"]
    if theirs:
        (tmp_path / "t" / "p=1" / "b").touch()
    appended.undo(NO_SESSION)
    assert catalog.tables()["t"]["partitions"] == (["p=0", "p=1"] if theirs else ["p=0"])


def test_a_record_round_trips_through_json() -> None:
    files = {"kind": "files", "path": "/t", "staging": "/s", "files": ["a"], "made": [""]}
    record = PreparedTable(
        "`t`", files, "CREATE TABLE t", SCHEMA.json(), partitions=("p=1",), emptied_partitions=("p=2",)
    )
    parsed = prepared_from_dict(json.loads(json.dumps(record.as_dict())))
    assert parsed == record
    assert (parsed.folder, parsed.extended_folders, parsed.is_atomic) == ("/t", ("/t",), False)


def test_files_of_a_table_that_is_not_in_the_catalog_are_completed(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog, tmp_path: Path, caplog: Any
) -> None:
    without_a_jvm(monkeypatch, tmp_path)
    staging = tmp_path / "staging"
    staging.mkdir()
    (staging / "a").touch()
    files = {"kind": "files", "path": str(tmp_path / "t"), "staging": str(staging), "files": ("a",)}
    bridge: JvmObject | None = None
    PreparedTable("`gone`", files).complete(Access(bridge))  # type: ignore[arg-type]
    assert (tmp_path / "t" / "a").exists()
    assert "has no table `gone`" in caplog.text


@pytest.fixture
def appended(monkeypatch: pytest.MonkeyPatch, catalog: Catalog, tmp_path: Path) -> PreparedTable:
    """The record of a job that has prepared rows for a new partition of an existing table."""
    without_a_jvm(monkeypatch, tmp_path)
    folder, staging = tmp_path / "t", tmp_path / ".penstock-t-0123456789ab-00000000-1-00000000"
    (staging / "p=1").mkdir(parents=True)
    (staging / "p=1" / "a").touch()
    folder.mkdir()
    catalog.put("t", location=str(folder), partitions=["p=0"])
    paths = {"path": f"file:{folder}", "staging": f"file:{staging}"}
    files = {"kind": "files", **paths, "files": ("p=1/a",), "made": ("p=1",)}
    return PreparedTable("t", files, partitions=("p=1",), new_partitions=("p=1",))


NO_SESSION: Any = Access(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("moved", [True, False])
def test_a_commit_to_a_dropped_table_fails(
    catalog: Catalog, appended: PreparedTable, tmp_path: Path, moved: bool
) -> None:
    """The partitions of another table of the same name do not change."""
    theirs = tmp_path / "theirs"
    (theirs / "p=1").mkdir(parents=True)
    catalog._write({})
    if moved:
        catalog.put("t", location=str(theirs), partitions=["p=1"])
    with pytest.raises(SinkError, match=r"table t cannot be committed[\s\S]*it was dropped"):
        appended.commit(NO_SESSION)
    appended.undo(NO_SESSION)
    assert catalog.tables() == ({"t": {"mark": "", "location": str(theirs), "partitions": ["p=1"]}} if moved else {})
    assert not (tmp_path / "t" / "p=1").exists()


def test_a_commit_fails_if_the_table_is_dropped_while_files_are_moved(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog, appended: PreparedTable
) -> None:
    commit = PreparedFiles.commit

    def commit_then_drop(self: Any, access: Any) -> None:
        commit(self, access)
        catalog._write({})

    monkeypatch.setattr(PreparedFiles, "commit", commit_then_drop)
    with pytest.raises(SinkError, match="table t cannot be committed"):
        appended.commit(NO_SESSION)


def test_undo_retains_a_partition_that_another_job_fills_meanwhile(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog, appended: PreparedTable, tmp_path: Path
) -> None:
    appended.commit(NO_SESSION)

    def forget(bridge: Any, name: str, folders: Any) -> None:
        (tmp_path / "t" / "p=1").mkdir()
        catalog.add_partitions(bridge, name, ["p=1"])
        catalog.unregister_partitions(bridge, name, folders)

    monkeypatch.setattr(catalog_tables, "unregister_partitions", forget)
    appended.undo(NO_SESSION)
    assert catalog.tables()["t"]["partitions"] == ["p=0", "p=1"]


def test_a_table_that_was_created_again_at_the_same_location_is_not_the_same(
    catalog: Catalog, appended: PreparedTable
) -> None:
    record = PreparedTable(**{**vars(appended), "created": 5})
    catalog.put("t", **catalog.tables()["t"] | {"created": 6})
    with pytest.raises(SinkError, match="table t cannot be committed"):
        record.commit(NO_SESSION)
    catalog.put("t", **catalog.tables()["t"] | {"created": 5})
    record.commit(NO_SESSION)


def test_a_session_with_another_catalog_recovers_nothing(
    monkeypatch: pytest.MonkeyPatch, appended: PreparedTable
) -> None:
    monkeypatch.setattr(catalog_tables, "persistent_catalog_id", lambda bridge: "")
    record = PreparedTable(**{**vars(appended), "catalog": "hive"})
    with pytest.raises(CommitError, match=r"spark\.sql\.catalogImplementation=hive"):
        record.check(NO_SESSION)
    assert Path(appended.hidden_folders[0].removeprefix("file:"), "p=1", "a").exists()


@pytest.mark.parametrize("more", [{}, {"of a newer release": 1}, {"files": {"of a newer release": 1}}])
def test_the_staging_folder_of_a_journal_is_not_a_leftover(
    monkeypatch: pytest.MonkeyPatch, appended: PreparedTable, tmp_path: Path, more: dict[str, Any]
) -> None:
    """It may contain the only copy of old rows, also if this release cannot follow the journal."""
    written = appended.as_dict()
    files = {**written["files"], **more.get("files", {})}
    part = prepared_or_unknown({**written, **more, "files": files}, is_of_this_version=True)
    assert (part.kind == "unknown") is bool(more)
    assert part.folder == f"file:{tmp_path}/t"
    monkeypatch.setattr(leftovers, "journals_at", lambda access, folder: ["journal"])
    monkeypatch.setattr(leftovers, "read_if_trusted", lambda access, path: SimpleNamespace(parts=[part]))
    assert leftovers.find_leftovers(NO_SESSION, str(tmp_path / "t")) == []
    monkeypatch.setattr(leftovers, "journals_at", lambda access, folder: [])
    assert [left.path for left in leftovers.find_leftovers(NO_SESSION, str(tmp_path / "t"))] == [
        appended.hidden_folders[0]
    ]
