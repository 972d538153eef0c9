"""State with a time to live expires when it would have without a rescale."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import penstock.state as st
from penstock.state.rewrite_methods import RewriteMethod
from tests.state.queries import NOON, SCHEMA, Query, add_file, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIFE = 60_000
"""Time to live in milliseconds: longer than six runs and three rescales on a busy machine."""
INPUT = [range(200), range(100), range(50, 150), range(200)]
"""The keys of each batch; the last batch runs when the entries of the first two have expired."""
RESCALES = {
    "files": (8, RewriteMethod.FILES),
    "rows": (8, RewriteMethod.ROWS),
    "shuffle": (6, RewriteMethod.SHUFFLE),
}


class Expiring(StatefulProcessor):
    """Value, list and map state with a time to live."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long", ttlDurationMs=LIFE)
        self._values = handle.getListState("values", "v long", ttlDurationMs=LIFE)
        self._counts_by_value = handle.getMapState("counts_by_value", "v long", "n long", ttlDurationMs=LIFE)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        count = self._count.get()[0] if self._count.exists() else 0
        for frame in rows:
            for value in frame["v"]:
                count += 1
                self._values.appendValue((int(value),))
                self._counts_by_value.updateValue((int(value),), (count,))
        self._count.update((count,))
        listed = sorted(int(entry[0]) for entry in self._values.get())
        map_keys = sorted(int(key[0]) for key, _ in self._counts_by_value.iterator())
        yield pd.DataFrame({"k": [key[0]], "n": [count], "state": [f"{listed} {map_keys}"]})

    def close(self) -> None:
        pass


@dataclass
class Entries:
    """The expected state of a key: each entry with the time at which it expires."""

    count: tuple[int, int] = (0, 0)
    values: list[tuple[int, int]] = field(default_factory=list)
    map_keys: dict[int, int] = field(default_factory=dict)

    def row(self, key: str, value: int, now: int) -> tuple[str, int, str]:
        """Add a row at a time `now`, and return the expected output."""
        expires = now + LIFE
        self.count = ((self.count[0] if self.count[1] > now else 0) + 1, expires)
        self.values = [entry for entry in self.values if entry[1] > now] + [(value, expires)]
        self.map_keys = {map_key: end for map_key, end in self.map_keys.items() if end > now} | {value: expires}
        return key, self.count[0], f"{sorted(stored for stored, _ in self.values)} {sorted(self.map_keys)}"


def _build(df: DataFrame) -> DataFrame:
    return df.groupBy("k").transformWithStateInPandas(
        Expiring(), "k string, n long, state string", "Update", "ProcessingTime"
    )


# Spark endlessly runs batches without data if state depends on processing time.
QUERY = Query("expiring", _build, settings={"spark.sql.streaming.noDataMicroBatches.enabled": "false"})


def add_input(spark: SparkSession, folder: Path, number: int) -> None:
    rows = [(f"key {key}", number, NOON) for key in INPUT[number]]
    spark.createDataFrame(rows, SCHEMA).coalesce(1).write.parquet(str(folder / f"part-{number}"))
    (file,) = (folder / f"part-{number}").glob("*.parquet")
    os.utime(file, (1_700_000_000 + number,) * 2)
    add_file(file, folder / f"{number}.parquet")
    shutil.rmtree(folder / f"part-{number}")


def expected(checkpoint: Path) -> list[list[tuple]]:
    """Return the expected output of each batch at the time that Spark logged; the batch of a rescale has none."""
    entries = {f"key {key}": Entries() for key in range(200)}
    logs = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda log: int(log.name))
    seen, batches = -1, []
    for log in logs:
        _, metadata, source = log.read_text().splitlines()
        number = json.loads(source)["logOffset"]
        if number != seen:
            now = json.loads(metadata)["batchTimestampMs"]
            rows = [entries[f"key {key}"].row(f"key {key}", number, now) for key in INPUT[number]]
            batches.append(sorted(rows, key=str))
        seen = number
    return batches


@pytest.mark.slow
def test_entries_from_before_a_rescale_expire_at_their_time(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    first = tmp_path / "twin"
    for number in (0, 1):
        add_input(spark, folder, number)
    outputs = {name: run(spark, QUERY, folder, first) for name in ("twin",)}
    for name, (groups, method) in RESCALES.items():
        shutil.copytree(first, tmp_path / name)
        outputs[name] = list(outputs["twin"])
        assert st.rescale(str(tmp_path / name), groups, spark=spark, method=method).new == groups
    for number in (2, 3):
        if number == 3:
            time.sleep(
                LIFE / 1000 - 5
            )  # the entries of the first two batches have expired then, those of the third may have
        add_input(spark, folder, number)
        for name in outputs:
            outputs[name] += run(spark, QUERY, folder, tmp_path / name)
    rows = {}
    for name, batches in outputs.items():
        assert batches == expected(tmp_path / name), name
        counts = [row[1] for row in batches[3]]
        assert 1 in counts, f"{name}: nothing has expired"
        assert max(row[1] for row in batches[2]) > 1, f"{name}: everything had expired"
        stores = st.inspect(str(tmp_path / name), count=True, spark=spark).stores
        rows[name] = [store.total_rows for store in stores]
    assert len({tuple(counts) for name, counts in rows.items() if outputs[name] == outputs["twin"]}) == 1
