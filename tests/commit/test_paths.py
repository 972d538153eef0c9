"""Comparison of paths of the same location."""

from __future__ import annotations

import pytest

from penstock.commit.folders import PreparedFolders
from penstock.commit.names import are_within, location_of


@pytest.mark.parametrize(
    ("path", "other", "is_same"),
    [
        ("s3a://jan/out", "s3a://jan/out/", True),
        ("s3a://jan/out", "s3://jan/out", True),
        ("s3a://jan/out", "s3a://feb/out", False),
        ("abfss://jan@store.net/out", "abfss://feb@store.net/out", False),
        ("gs://jan", "gs://feb", False),
        ("hdfs://namenode:8020/out", "hdfs:/out", True),
        ("file:/out", "/out", True),
        ("file:///out", "/out", True),
    ],
)
def test_locations(path: str, other: str, is_same: bool) -> None:
    assert (location_of(path) == location_of(other)) == is_same
    assert are_within([f"{path}/p=1"], [other]) == is_same
    assert not are_within([path], [f"{other}/p=1"])


@pytest.mark.parametrize(("name", "mark"), [("daily", "daily"), ("day=a:b", "day=a_b")])
def test_the_hidden_file_of_a_new_folder(name: str, mark: str) -> None:
    """Later releases rely on this name; Hadoop accepts no colon in it."""
    prepared = PreparedFolders(f"/out/{name}", f"/out/.penstock-{name}-0123456789ab", ("",))
    assert prepared._marker_name == f".new-penstock-{mark}-0123456789ab"
