"""Parsing and writing of the entries of a checkpoint's logs."""

from __future__ import annotations

import pytest

from penstock.errors import StateError
from penstock.state.log_entries import CommitEntry, OffsetEntry, OperatorEntry, parse_snapshot_metadata

OFFSETS = 'v1\n{"batchWatermarkMs":7,"conf":{"spark.sql.shuffle.partitions":"4","x":"y"}}\n{"logOffset":1}\n-'
OPERATOR = (
    'v1\n{"operatorInfo":{"operatorId":3,"operatorName":"stateStoreSave"},'
    '"stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,"numPartitions":4}]}'
)


def test_offsets_change_only_the_number() -> None:
    entry = OffsetEntry.parse(OFFSETS, "offsets/1")
    assert entry.max_parallelism == 4
    assert str(entry) == OFFSETS
    assert str(entry.with_max_parallelism(8)) == OFFSETS.replace('"4"', '"8"')


def test_only_commits_of_version_two_have_ids() -> None:
    version_1 = CommitEntry.parse('v1\n{"nextBatchWatermarkMs":7}', "commits/1")
    assert version_1.with_checkpoint_ids({0: [["a"]]}) == version_1
    version_2 = CommitEntry.parse('v2\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":[["old"]]}}', "commits/1")
    assert str(version_2.with_checkpoint_ids({0: [["a"], ["b"]]})) == (
        'v2\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":[["a"],["b"]]}}'
    )


def test_operators() -> None:
    entry = OperatorEntry.parse(OPERATOR, "metadata")
    assert (entry.operator, entry.name, entry.stores) == (3, "stateStoreSave", ("default",))
    assert '"numPartitions":12' in str(entry.with_max_parallelism(12))


@pytest.mark.parametrize("text", ["", "v1", "v1\n{torn", "v1\n[]", "no version\n{}"])
def test_damaged_entries(text: str) -> None:
    with pytest.raises(StateError, match="offsets/1 cannot be read as a part of a checkpoint"):
        OffsetEntry.parse(text, "offsets/1")


def test_snapshots() -> None:
    text = 'v1\n{"sstFiles":[{"sizeBytes":5},{"sizeBytes":6}],"numKeys":4,"numInternalKeys":1}'
    assert parse_snapshot_metadata(text, "1.zip") == (5, 11)
    assert parse_snapshot_metadata(text.replace("4", "-1"), "1.zip")[0] is None
    with pytest.raises(StateError, match=r"1\.zip"):
        parse_snapshot_metadata("v1\n{}", "1.zip")
