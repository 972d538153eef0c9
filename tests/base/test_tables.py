"""Tables of a job, as text."""

from __future__ import annotations

from penstock.base.tables import VertexRow, vertices_table


def test_a_table_prints_as_text() -> None:
    rows = [VertexRow("v1", "orders", 3 << 20, 4, "4 files", 1.5, 1000), VertexRow("v2", "Sink", None, None, "", 0.0)]
    text = str(vertices_table("nightly: finished", rows, ()))
    title, *_ = lines = text.splitlines()
    assert title.startswith("nightly: finished")
    (first,) = (line for line in lines if "orders" in line)
    assert [cell.strip() for cell in first.strip("│").split("│")] == [
        "1",
        "orders",
        "3.0 MiB",
        "4",
        "4 files",
        "1,000",
        "",  # unknown
        "1.50",
    ]
    assert "TextTable" not in text


def test_markup_is_not_interpreted() -> None:
    rows = [VertexRow("v1", "write to s3://b/[/x]", None, 1, "by column arr[i]", 1.0)]
    text = str(vertices_table("nightly [/data/orders]", rows, ()))
    for shown in ("nightly [/data/orders]", "write to s3://b/[/x]", "by column arr[i]"):
        assert shown in text
    assert "[red] and [/red]" in str(vertices_table("small", [], ["[red] and [/red]"]))


def test_a_job_without_vertices_shows_its_notes() -> None:
    lines = str(vertices_table("small: finished", [], ["Spark runs this query unchanged"])).splitlines()
    assert "what happened" in lines[2]
    assert "Spark runs this query unchanged" in lines[4]
    assert not any("bytes in" in line for line in lines)
