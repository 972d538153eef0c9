"""The driver dies, or a step fails, at every step of a commit: targets stay readable, and end with every row once."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import combinations_with_replacement, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.bridge.java_classes import new_instance
from penstock.spark.bridge.jvm import Bridge
from tests.commit.checks import steps_of, stopped
from tests.commit.local import LocalSqlite, as_a_volume, as_an_object_store, without_a_jvm
from tests.commit.targets import FILES, Delta, Files, Iceberg, Jdbc, Kafka, KafkaParts, Template
from tests.support.services import Postgres, Sqlite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.forks

EVERY = os.environ.get("KILL_POINTS") == "all"
NO_JVM = [
    *(f"files {case}" for case in FILES),
    *(f"{kind} {mode}" for kind in ("delta", "iceberg", "local") for mode in ("create", "append", "overwrite")),
    *(f"{kind} upsert" for kind in ("delta", "iceberg")),
    "kafka append",
    "kafka parts",
]
PAIRED = (
    "files append by partition",
    "files overwrite",
    "files dynamic",
    "local append",
    "delta append",
    "iceberg append",
    "kafka append",
)
"""All pairs of these run always, at a few steps; other pairs, and those without a token, are slow tests."""
SAMPLE = {
    *((pair, "t") for pair in combinations_with_replacement(PAIRED, 2)),
    (("files overwrite", "local append"), None),
    (("local append", "delta append"), None),
}
PAIRS = [
    pytest.param(
        pair,
        token,
        id=" + ".join(pair) + (", token" if token else ""),
        marks=() if (pair, token) in SAMPLE else pytest.mark.slow,
    )
    for pair in combinations_with_replacement(
        sorted(NO_JVM, key=lambda name: (name not in PAIRED, PAIRED.index(name) if name in PAIRED else 0)), 2
    )
    for token in (None, "t")
    if token or not {"kafka append", "kafka parts"} & set(pair)  # without a token delivery is at least once
    if not {"files create by partition", "files append by _p", "files overwrite by partition", "files dynamic by _p"}
    & set(pair)
]
TABLES = ("sqlite", "postgres")
WITH_SPARK = [
    *((f"files {case}",) for case in FILES),
    ("delta append",),
    ("iceberg overwrite",),
    ("delta upsert",),
    ("iceberg upsert",),
    ("delta upsert", "iceberg upsert"),
    *((f"{kind} {mode}",) for kind in TABLES for mode in ("create", "append", "overwrite")),
    ("files overwrite", "files dynamic"),
    ("files append", "delta append"),
    ("files overwrite", "iceberg append"),
    ("files dynamic", "postgres append"),
    ("files overwrite", "sqlite overwrite"),
    ("delta create", "postgres append"),
    ("delta append", "sqlite append"),
    ("iceberg append", "sqlite append"),
    ("iceberg create", "postgres overwrite"),
    ("postgres append", "postgres overwrite"),
    ("sqlite append", "sqlite append"),
    ("sqlite overwrite", "postgres append"),
    ("kafka append",),
    ("kafka parts",),
    ("files append", "kafka append"),
    ("files append", "kafka parts"),
    ("delta append", "kafka append"),
    ("kafka append", "postgres append"),
]

QUICK = {
    ("files append by partition",),
    ("files dynamic", "postgres append"),
    ("files overwrite", "iceberg append"),
    ("delta append", "sqlite append"),
    ("files append", "kafka append"),
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A separate server, because drivers that die leave staged rows."""
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Sqlite:
    return Sqlite(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="module")
def counts() -> Iterator[Any]:
    tries: Counter[Any] = Counter()
    yield tries
    print(
        "\nkill points:",
        sum(tries.values()),
        *(f"{number} {name}" for name, number in sorted(tries.items())),
        sep="\n  ",
    )


@pytest.fixture(scope="module")
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that returns a template, written by Spark if there is a session."""
    templates = {}

    def by(spark: SparkSession) -> Any:
        key = spark is None
        if key not in templates:
            templates[key] = Template(spark, tmp_path_factory.mktemp("template"))
        return templates[key]

    return by


@pytest.fixture
def maker(request: pytest.FixtureRequest, written: Any, tmp_path: Path) -> Any:
    """Return a function that creates a new target by name, such as "files append" or "delta append"."""
    numbers = iter(range(100_000))

    def make(spark: SparkSession, name: str, token: str | None, database: Any = None) -> Any:
        kind, _, mode = name.partition(" ")
        folder = tmp_path / str(next(numbers))
        template = written(spark)
        match kind:
            case "files":
                mode, layout, exists = FILES[mode]
                return Files(template, folder, mode, layout, exists=exists, token=token)
            case "delta" | "iceberg":
                table = {"delta": Delta, "iceberg": Iceberg}[kind]
                return table(template, folder, mode.replace("create", "append"), exists=mode != "create", token=token)
            case "local":
                server = LocalSqlite(database)
                return Jdbc(None, server, mode.replace("create", "append"), exists=mode != "create", token=token)
            case "kafka":
                topic = KafkaParts if mode == "parts" else Kafka
                return topic(spark, request.getfixturevalue("broker"), token=token)
            case _:
                server = request.getfixturevalue(kind)
                return Jdbc(spark, server, mode.replace("create", "append"), exists=mode != "create", token=token)

    return make


def points(steps: Any, few: int, offset: int) -> Any:
    """Return kill points before each step and after the last, as pairs of step and side; or a sample of `few`."""
    every = [(number, False) for number in range(len(steps))] + [(len(steps) - 1, True)]
    if EVERY or few >= len(every):
        return every
    return [every[(offset + round(number * len(every) / few)) % len(every)] for number in range(few)]


def try_kill_points(spark: SparkSession, make: Any, counts: Any, name: Any, few: Any) -> None:
    """Stop commits at all steps, or at a sample of steps that differs between cases."""
    steps = steps_of(spark, make)
    # Without a token, a rerun of a committed job would append its rows twice.
    repeats = all(target.token or target.repeats for target in make())
    offset = zlib.crc32(os.environ["PYTEST_CURRENT_TEST"].encode())
    for how, some in (("kill", few), ("error", -(-few // 2))):
        for number, (step, after) in enumerate(points(steps, some, offset)):
            for by in (
                ("recover", "rerun") if EVERY and repeats else ("rerun" if repeats and number % 2 else "recover",)
            ):
                stopped(spark, make, step, after=after, how=how, by=by)
                counts[f"{how} {name}"] += 1


def slow_without(token: Any, case: Any) -> Any:
    """Mark cases without a token, and with columns that begin with ``_``, as slow."""
    slow = token is None or "_p" in case
    return pytest.param(case, token, id=f"{case}{', token' if token else ''}", marks=pytest.mark.slow if slow else ())


@pytest.mark.thorough
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("case", "token"),
    [slow_without(token, case) for case in NO_JVM for token in (None, "t") if token or "kafka" not in case],
)
def test_a_sink_without_a_jvm(
    monkeypatch: pytest.MonkeyPatch, maker: Any, counts: Any, tmp_path: Path, case: Any, token: Any
) -> None:
    spark = without_a_jvm(monkeypatch, tmp_path)
    databases = (tmp_path / f"{number}.db" for number in count())
    few = 5 if "parts" in case else 2 if "kafka" in case else 3
    try_kill_points(spark, lambda: [maker(None, case, token, next(databases))], counts, case, few)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("case", "token"), [slow_without(token, case) for case in FILES for token in (None, "t")])
def test_a_sink_on_an_object_store(
    monkeypatch: pytest.MonkeyPatch, maker: Any, counts: Any, tmp_path: Path, case: Any, token: Any
) -> None:
    spark = without_a_jvm(monkeypatch, tmp_path)
    as_an_object_store(monkeypatch)
    monkeypatch.setattr(Files, "is_whole", False)
    try_kill_points(spark, lambda: [maker(None, f"files {case}", token)], counts, f"object store, files {case}", 3)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("case", "token"), [slow_without(token, case) for case in FILES if "create" not in case for token in (None, "t")]
)
def test_a_sink_on_a_volume(
    monkeypatch: pytest.MonkeyPatch, maker: Any, counts: Any, tmp_path: Path, case: Any, token: Any
) -> None:
    spark = without_a_jvm(monkeypatch, tmp_path)
    as_a_volume(monkeypatch)
    if case.startswith("overwrite"):
        monkeypatch.setattr(Files, "is_whole", False)
    try_kill_points(spark, lambda: [maker(None, f"files {case}", token)], counts, f"volume, files {case}", 3)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("pair", "token"), PAIRS)
def test_pairs_without_a_jvm(
    monkeypatch: pytest.MonkeyPatch, maker: Any, counts: Any, tmp_path: Path, pair: Any, token: Any
) -> None:
    spark = without_a_jvm(monkeypatch, tmp_path)
    databases = (tmp_path / f"{number}.db" for number in count())

    def make() -> Any:
        database = next(databases)
        return [maker(None, name, token, database) for name in pair]

    try_kill_points(spark, make, counts, " + ".join(pair), 1 if {"kafka append", "kafka parts"} & set(pair) else 3)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("case", "token"),
    [
        pytest.param(
            case,
            token,
            id=" + ".join(case) + (", token" if token else ""),
            marks=() if case in QUICK and token else pytest.mark.slow,
        )
        for case in WITH_SPARK
        for token in (None, "t")
        if token or not {"kafka append", "kafka parts"} & set(case)  # without a token delivery is at least once
    ],
)
def test_with_spark(spark: SparkSession, maker: Any, counts: Any, case: Any, token: Any) -> None:
    new_instance(Bridge(spark), "TaskAttempt")  # in the parent, so that children need not send it to Spark again
    steps_of(
        spark, lambda: [maker(spark, name, token) for name in case]
    )  # creates the tables of journals on the shared servers
    try_kill_points(
        spark, lambda: [maker(spark, name, token) for name in case], counts, f"with Spark: {' + '.join(case)}", 3
    )
