"""A table of the catalogue is there with its rows or not at all, wherever the driver dies; the catalogue is a file."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from penstock.commit import Access, catalog_tables, places, recover
from penstock.commit.added_files import PreparedFiles
from penstock.commit.catalog_tables import PreparedTable
from penstock.commit.folders import PreparedFolders
from penstock.commit.journal import journals_at
from penstock.commit.prepared import Prepared, prepared_of
from penstock.commit.unknown import known_or_not
from penstock.connectors import FileSink
from penstock.errors import CommitError, SinkError
from tests.commit import harness
from tests.commit.checks import journals, run, steps_of, stopped
from tests.commit.harness import Injected, Stop, commit, in_child
from tests.commit.local import LocalFolder, LocalSqlite, as_an_object_store, without_a_jvm
from tests.commit.targets import FILES, Files, Jdbc, Template

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.handles import JvmObject

pytestmark = pytest.mark.forks
EVERY = os.environ.get("KILL_POINTS") == "all"
OF_THE_CATALOGUE = (
    "create_table",
    "drop_table",
    "unmark_table",
    "add_partitions",
    "forget_partitions",
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
    """What Spark's catalogue does with tables, by a file that outlives a driver."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def tables(self) -> dict[str, Any]:
        return json.loads(self.file.read_text()) if self.file.exists() else {}

    def put(self, name: str, **facts: Any) -> None:
        self._write(self.tables() | {name: {"mark": "", "partitions": []} | facts})

    def _write(self, tables: dict[str, Any]) -> None:
        made = self.file.with_suffix(".new")
        made.write_text(json.dumps(tables))
        made.rename(self.file)

    def find_table(self, bridge: Any, name: str) -> Any:
        found = self.tables().get(name)
        return (
            None
            if found is None
            else SimpleNamespace(name=name, location=found["location"], created=found.get("created", 0))
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
        found = self.tables()[name]
        self.put(name, **found | {"partitions": sorted({*found["partitions"], *folders})})

    def forget_partitions(self, bridge: Any, name: str, folders: Any) -> None:
        found = self.tables()[name]
        self.put(name, **found | {"partitions": sorted({*found["partitions"]} - {*folders})})

    def update_statistics(self, bridge: Any, name: str) -> None:
        assert name in self.tables()


class TableFiles(FileSink):
    """The files of a table, and the record that tells the catalogue of it."""

    def open(self, spark: Any) -> Any:
        job = super().open(spark)
        prepare = job.prepare

        def with_table() -> Prepared | None:
            record = prepare()
            if record is None or job.nothing_to_write is not None:
                return record
            files = record.as_dict()
            known = set(CATALOGS[-1].tables().get(self.entry, {}).get("partitions", ()))
            written = set(job.partitions)
            is_new = self.mode == "error"
            gone = known - written if self.mode == "overwrite" and not job.replaces_partitions else set()
            told = [tuple(sorted(names)) for names in (written, set() if is_new else written - known, gone)]
            names = ("partitions", "new_partitions", "gone_partitions")
            statement = f"CREATE TABLE {self.entry} AS SELECT 1" if is_new else ""
            schema = SCHEMA.json() if is_new else ""
            facts: dict[str, Any] = dict(zip(names, told, strict=True))
            return PreparedTable(self.entry, files, statement, schema, location=self.path, **facts)

        job.prepare = with_table  # type: ignore[method-assign]
        return job

    @property
    def entry(self) -> str:
        return f"t{Path(self.path).parent.name}"


CATALOGS: list[Catalog] = []
"""The catalogue of the test that runs."""


class Table(Files):
    """A table of the catalogue: without an entry there are no rows."""

    def __init__(self, catalog: Catalog, *args: Any, **facts: Any) -> None:
        super().__init__(*args, **facts)
        self.catalog = catalog
        if facts["exists"]:
            known = sorted(one.name for one in self.path.glob("p=*"))
            catalog.put(self.entry, location=str(self.path), partitions=known)

    @property
    def entry(self) -> str:
        return f"t{self.path.parent.name}"

    def sink(self) -> FileSink:
        found = super().sink()
        return TableFiles(
            found.path, mode=found.mode, partition_by=found.partition_by, options=found.options, token=found.token
        )

    def rows(self) -> Any:
        found = self.catalog.tables().get(self.entry)
        rows = super().rows() if found is not None else []
        return [row for row in rows if self.layout == "plain" or f"p={row[1]}" in found["partitions"]]

    def is_readable(self, rows: Any) -> bool:
        # While it is being made, the catalogue hears of its partitions after it has heard of the table.
        return super().is_readable(rows) or (self.layout == "parts" and not self.old and not rows)


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Catalog]:
    made = Catalog(tmp_path / "catalog.json")
    CATALOGS.append(made)
    for name in ("find_table", "is_marked", *OF_THE_CATALOGUE):
        monkeypatch.setattr(catalog_tables, name, getattr(made, name))
    steps = [(catalog_tables, name) for name in OF_THE_CATALOGUE]
    monkeypatch.setattr(harness, "STEPS", [*harness.STEPS, *steps])
    yield made
    CATALOGS.remove(made)


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
        found: list[Any] = [Table(catalog, template, folder, mode, layout, exists=exists, token="t")]
        if other == "files":
            found.append(Files(template, tmp_path / str(next(numbers)), "append", "plain", exists=True, token="t"))
        if other == "database":
            found.append(Jdbc(None, LocalSqlite(f"{folder}.db"), "append", exists=True, token="t"))
        return found

    steps = steps_of(spark, make)
    assert ("create_table" in steps) is case.startswith("create")
    assert ("unmark_table" in steps) is case.startswith("create")
    told = [number for number, step in enumerate(steps) if EVERY or number % 9 == 0 or step in OF_THE_CATALOGUE]
    for number in told:
        for after in (False, True) if EVERY or steps[number] in OF_THE_CATALOGUE else (number % 2 == 0,):
            for how in ("kill", "error"):
                stopped(spark, make, number, after=after, how=how, by="recover")


class Overtaken(Table):
    """A table of whose name another program makes one, in a place of its own, while the job commits."""

    moment: str = "prepare"

    @property
    def theirs(self) -> Path:
        return self.path.parent / "theirs"

    def make_theirs(self) -> None:
        self.theirs.mkdir(exist_ok=True)
        (self.theirs / "rows").touch()
        self.catalog.put(self.entry, location=str(self.theirs))
        (self.place / "is theirs").touch()

    def write(self, job: Any) -> None:
        super().write(job)
        places: list[tuple[Any, str]] = {
            "prepare": [(job, "prepare")],
            "moved": [(PreparedFolders, "commit"), (PreparedFiles, "commit")],
            "create_table": [(catalog_tables, "create_table")],
        }[self.moment]
        for place, name in places:
            setattr(place, name, self.overtaken(getattr(place, name), name))

    def overtaken(self, original: Any, name: str) -> Any:
        def overtaken(*args: Any, **kwargs: Any) -> Any:
            if name == "create_table":
                self.make_theirs()
            result = original(*args, **kwargs)
            self.make_theirs()
            return result

        return overtaken


class Refused(TableFiles):
    """A sink whose job fails once all others are prepared."""

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
def test_a_table_that_another_program_makes_meanwhile_stays(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog, tmp_path: Path, how: str, store: bool, moment: str
) -> None:
    """Wherever the job dies, fails or notices it: it has no right to a table that it has not made."""
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
        for path in journals_at(Access(None), LocalFolder(None, str(target.place))):  # type: ignore[arg-type]
            recover(Access(None), path)  # type: ignore[arg-type]
        if (target.place / "is theirs").exists():
            found = catalog.tables()[target.entry]
            assert (found["location"], found["mark"]) == (str(target.theirs), ""), number
            assert (target.theirs / "rows").exists(), number
        assert not target.path.exists()
        assert not journals(target), number
        noticed = not end.killed and "Injected" not in str(end.error)
        if noticed:
            assert "exists already" in str(end.error)
            break


def test_a_job_that_fails_before_it_is_ready_drops_no_table(
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
def test_an_undone_append_keeps_partitions_with_rows_of_others(
    catalog: Catalog, appended: PreparedTable, tmp_path: Path, theirs: bool
) -> None:
    appended.commit(NOBODY)
    assert catalog.tables()["t"]["partitions"] == ["p=0", "p=1"]
    if theirs:
        (tmp_path / "t" / "p=1" / "b").touch()
    appended.undo(NOBODY)
    assert catalog.tables()["t"]["partitions"] == (["p=0", "p=1"] if theirs else ["p=0"])


def test_a_record_survives_its_journal() -> None:
    files = {"kind": "files", "path": "/t", "staging": "/s", "files": ["a"], "made": [""]}
    record = PreparedTable("`t`", files, "CREATE TABLE t", SCHEMA.json(), partitions=("p=1",), gone_partitions=("p=2",))
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
    PreparedTable("`gone`", files).complete(Access(bridge))  # type: ignore[arg-type]
    assert (tmp_path / "t" / "a").exists()
    assert "has no table `gone`" in caplog.text


@pytest.fixture
def appended(monkeypatch: pytest.MonkeyPatch, catalog: Catalog, tmp_path: Path) -> PreparedTable:
    """A job that has rows ready for a new partition of a table that is there."""
    without_a_jvm(monkeypatch, tmp_path)
    folder, staging = tmp_path / "t", tmp_path / ".penstock-t-0123456789ab-00000000-1-00000000"
    (staging / "p=1").mkdir(parents=True)
    (staging / "p=1" / "a").touch()
    folder.mkdir()
    catalog.put("t", location=str(folder), partitions=["p=0"])
    paths = {"path": f"file:{folder}", "staging": f"file:{staging}"}
    files = {"kind": "files", **paths, "files": ("p=1/a",), "made": ("p=1",)}
    return PreparedTable("t", files, partitions=("p=1",), new_partitions=("p=1",))


NOBODY: Any = Access(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("moved", [True, False])
def test_a_table_that_was_dropped_meanwhile_is_told(
    catalog: Catalog, appended: PreparedTable, tmp_path: Path, moved: bool
) -> None:
    """Another that has its name now hears of no partition, and keeps those it has."""
    theirs = tmp_path / "theirs"
    (theirs / "p=1").mkdir(parents=True)
    catalog._write({})
    if moved:
        catalog.put("t", location=str(theirs), partitions=["p=1"])
    with pytest.raises(SinkError, match=r"table t cannot be committed[\s\S]*it was dropped"):
        appended.commit(NOBODY)
    appended.undo(NOBODY)
    assert catalog.tables() == ({"t": {"mark": "", "location": str(theirs), "partitions": ["p=1"]}} if moved else {})
    assert not (tmp_path / "t" / "p=1").exists()


def test_a_table_that_is_dropped_while_files_are_moved_is_told(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog, appended: PreparedTable
) -> None:
    commit = PreparedFiles.commit

    def dropped(self: Any, access: Any) -> None:
        commit(self, access)
        catalog._write({})

    monkeypatch.setattr(PreparedFiles, "commit", dropped)
    with pytest.raises(SinkError, match="table t cannot be committed"):
        appended.commit(NOBODY)


def test_a_partition_that_another_job_fills_while_it_is_forgotten_is_known(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog, appended: PreparedTable, tmp_path: Path
) -> None:
    appended.commit(NOBODY)

    def forget(bridge: Any, name: str, folders: Any) -> None:
        (tmp_path / "t" / "p=1").mkdir()
        catalog.add_partitions(bridge, name, ["p=1"])
        catalog.forget_partitions(bridge, name, folders)

    monkeypatch.setattr(catalog_tables, "forget_partitions", forget)
    appended.undo(NOBODY)
    assert catalog.tables()["t"]["partitions"] == ["p=0", "p=1"]


def test_a_table_that_was_made_again_in_the_same_place_is_another(catalog: Catalog, appended: PreparedTable) -> None:
    there = PreparedTable(**{**vars(appended), "created": 5})
    catalog.put("t", **catalog.tables()["t"] | {"created": 6})
    with pytest.raises(SinkError, match="table t cannot be committed"):
        there.commit(NOBODY)
    catalog.put("t", **catalog.tables()["t"] | {"created": 5})
    there.commit(NOBODY)


def test_a_session_with_another_catalogue_recovers_nothing(
    monkeypatch: pytest.MonkeyPatch, appended: PreparedTable
) -> None:
    monkeypatch.setattr(catalog_tables, "lasting_catalog", lambda bridge: "")
    there = PreparedTable(**{**vars(appended), "catalog": "hive"})
    with pytest.raises(CommitError, match=r"spark\.sql\.catalogImplementation=hive"):
        there.check(NOBODY)
    assert Path(appended.hidden[0].removeprefix("file:"), "p=1", "a").exists()


@pytest.mark.parametrize("more", [{}, {"of a newer release": 1}, {"files": {"of a newer release": 1}}])
def test_what_a_journal_of_a_table_needs_is_no_leftover(
    monkeypatch: pytest.MonkeyPatch, appended: PreparedTable, tmp_path: Path, more: dict[str, Any]
) -> None:
    """The old rows may be there: whoever removes them, with a journal that could not be followed, loses them."""
    written = appended.as_dict()
    files = {**written["files"], **more.get("files", {})}
    part = known_or_not({**written, **more, "files": files}, is_of_this_version=True)
    assert (part.kind == "unknown") is bool(more)
    assert part.folder == f"file:{tmp_path}/t"
    monkeypatch.setattr(places, "journals_at", lambda access, folder: ["journal"])
    monkeypatch.setattr(places, "read_own_journal", lambda access, path: SimpleNamespace(parts=[part]))
    assert places.leftovers_at(NOBODY, str(tmp_path / "t")) == []
    monkeypatch.setattr(places, "journals_at", lambda access, folder: [])
    assert [left.path for left in places.leftovers_at(NOBODY, str(tmp_path / "t"))] == [appended.hidden[0]]
