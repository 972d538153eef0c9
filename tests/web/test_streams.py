"""Streams on the page and in the API."""

from __future__ import annotations

from pathlib import Path

from penstock.connectors.kafka.streams.pace import MeasuredBatch
from penstock.streams.reading import LocalTextFiles
from tests.streams.test_batches import entry, planned, to_offset
from tests.web.test_api import Client, served


def checkpoint(folder: Path) -> LocalTextFiles:
    (folder / "offsets").mkdir(parents=True)
    for batch, before in ((3, None), (4, MeasuredBatch(2_000, 1.5)), (5, MeasuredBatch(1_000, 10.0, waited=True))):
        offset = to_offset({("t", 0): batch}, planned(2_000, before))
        (folder / "offsets" / str(batch)).write_text(entry(offset))
    return LocalTextFiles(folder)


def test_batches_are_shown(tmp_path: Path) -> None:
    location = checkpoint(tmp_path / "<orders>")
    client = Client(served(streams=[location, LocalTextFiles(tmp_path / "nowhere")]))
    first, second = client.get("/streams").json()["streams"]
    assert (first["checkpoint"], first["problem"]) == (str(location), None)
    assert [(batch["batch"], batch["decision"]["tasks"], batch["ran"]) for batch in first["batches"]] == [
        (5, 2, None),
        (4, 2, {"records": 1_000, "seconds": 10.0, "waited": True}),
        (3, 2, {"records": 2_000, "seconds": 1.5, "waited": False}),
    ]
    assert second["batches"] == []
    assert "has no batch whose records Penstock has chosen" in second["problem"]
    page = client.get("/ui/streams").text
    for text in (
        "&lt;orders&gt;",
        "less than 10.0 s",
        "1.5 s",
        "unknown",
        "2,000",
        "has no batch whose records Penstock has chosen",
    ):
        assert text in page
    assert "<orders>" not in page
    assert '<a href="/ui/streams">' in client.get("/").text


def test_without_streams() -> None:
    client = Client(served())
    assert client.get("/streams").json() == {"streams": []}
    assert "penstock ui --stream CHECKPOINT" in client.get("/ui/streams").text
    assert "/ui/streams" not in client.get("/").text
