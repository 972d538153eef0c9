"""Tables of a job, as text."""

from __future__ import annotations

from penstock.tables import VertexRow, vertices_table


def test_a_table_prints_as_text() -> None:
    rows = [VertexRow("v1", "orders", 3 << 20, 4, "4 files", 1.5, 1000), VertexRow("v2", "Sink", None, None, "", 0.0)]
    text = str(vertices_table("nightly: finished", rows, ()))
    title, *_ = lines = text.splitlines()
    assert title.startswith("nightly: finished")
    (first,) = (line for line in lines if "orders" in line)
    assert [cell.strip() for cell in first.strip("│").split("│")] == [
        "v1",
        "orders",
        "3.0 MiB",
        "4",
        "4 files",
        "1,000",
        "",  # what is not known
        "1.50",
    ]
    assert "TextTable" not in text


def test_a_job_without_vertices_is_told_in_sentences() -> None:
    lines = str(vertices_table("small: finished", [], ["Spark runs this query as it is"])).splitlines()
    assert "what happened" in lines[2]
    assert "Spark runs this query as it is" in lines[4]
    assert not any("bytes in" in line for line in lines)
