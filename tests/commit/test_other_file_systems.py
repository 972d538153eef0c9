"""File systems that only Hadoop can access: with renames of folders but no exchange, and object stores."""

from __future__ import annotations

import itertools
import shutil
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors import FileSink
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io import filesystem
from penstock.spark.io.filesystem import HadoopPath
from tests.commit.checks import leftovers, run, steps_of, stopped
from tests.commit.targets import FILES, Files, Template

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.forks


@pytest.fixture(scope="module")
def mounted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A folder with a path of another scheme, like HDFS."""
    folder = tmp_path_factory.mktemp("mounted")
    spark.conf.set("fs.viewfs.mounttable.default.link./m", f"file://{folder}")
    yield folder
    spark.conf.unset("fs.viewfs.mounttable.default.link./m")


class Mounted(Files):
    """A folder of files, read by its local path; between two renames it may not exist."""

    def sink(self) -> Any:
        return self._at(super().sink())

    def _at(self, sink: FileSink) -> FileSink:
        parent = f"viewfs:///m/{self.journal_folder.name}"
        return FileSink(
            f"{parent}/out", mode=sink.mode, partition_by=sink.partition_by, options=sink.options, token=sink.token
        )

    def write(self, job: Any) -> None:
        if not job.nothing_to_write:
            staging = self.journal_folder / job._staging.name
            shutil.copytree(self.template("new", self.layout), staging, ignore=shutil.ignore_patterns("*.crc"))
            for file in staging.rglob("part-*"):
                file.rename(file.with_name(f"part-{uuid.uuid4()}.parquet"))

    def is_readable(self, rows: Any) -> bool:
        if self.mode == "append" or not self.is_whole:
            return super().is_readable(rows)
        gone = {p for _, p in self.old} - {p for _, p in rows}
        return any(
            super(Mounted, self).is_readable(sorted([*rows, *((i, p) for i, p in self.old if p in some)]))
            for some in (set(), gone)
        )


@pytest.mark.parametrize("whole", [True, False], ids=["folders are renamed", "files are renamed"])
@pytest.mark.parametrize("case", ["create", "append by partition", "overwrite", "dynamic"])
def test_a_commit_through_hadoop(
    spark: SparkSession,
    mounted: Any,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    whole: bool,
    case: str,
) -> None:
    if not whole:
        monkeypatch.setattr(filesystem, "_RENAME_ATOMICALLY", set())
        monkeypatch.setattr(Files, "is_whole", False)
    template = Template(None, tmp_path_factory.mktemp("template"))
    numbers = itertools.count()
    mode, layout, exists = FILES[case]

    def make() -> Any:
        return [
            Mounted(
                template, mounted / f"{uuid.uuid4().hex[:6]}{next(numbers)}", mode, layout, exists=exists, token="t"
            )
        ]

    target = make()[0]
    folder = HadoopPath(Bridge(spark), target.sink().path)
    assert folder.local_path is None
    assert not folder.is_volume
    assert str(folder.resolved) == str(folder)
    assert folder.renames_atomically == whole
    run(spark, [target])
    assert target.rows() == target.new
    assert not leftovers(target)
    steps = steps_of(spark, make)
    for number in range(0, len(steps), -(-len(steps) // 4)):
        stopped(spark, make, number, after=False, how="kill" if number % 2 else "error", by="recover")
