"""Queries of `real_life.py` over a pipeline of JSON events: parsed, exploded, divided into sessions, and sent to Python.

Functions that run in Python workers are local functions, which are sent by value: workers cannot import this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

PAYLOAD = (
    "user BIGINT, at TIMESTAMP, kind STRING, page STRING, device STRUCT<os: STRING, bot: BOOLEAN>, tags ARRAY<STRING>, "
    "items ARRAY<STRUCT<sku: STRING, quantity: INT, price: DOUBLE>>"
)
SESSION_GAP_SECONDS = 1800


def parsed(spark: SparkSession) -> DataFrame:
    """Return the events with a column for each field of their JSON."""
    payload = F.from_json("payload", PAYLOAD).alias("payload")
    return spark.table("events").select("event_id", "received", payload).select("event_id", "received", "payload.*")


def events_by_day(spark: SparkSession) -> DataFrame:
    """Return the number of events and users of each kind and day."""
    field = {name: F.get_json_object("payload", f"$.{name}") for name in ("at", "kind", "user")}
    return (
        spark.table("events")
        .groupBy(F.to_date(field["at"]).alias("day"), field["kind"].alias("kind"))
        .agg(F.count("*").alias("events"), F.count_distinct(field["user"]).alias("users"))
    )


def revenue_by_article(spark: SparkSession) -> DataFrame:
    """Return the articles with the largest revenue; each item of an order becomes a row."""
    items = parsed(spark).where("kind = 'order'").select("user", F.explode("items").alias("item"))
    revenue = F.sum(F.col("item.quantity") * F.col("item.price")).alias("revenue")
    by_article = items.groupBy("item.sku").agg(revenue, F.count_distinct("user").alias("users"))
    return by_article.orderBy(F.desc("revenue"), "sku").limit(20)


def sessions_by_day(spark: SparkSession) -> DataFrame:
    """Return the number and mean duration of sessions by day; a session ends after half an hour without events."""
    in_order = Window.partitionBy("user").orderBy("at", "event_id")
    gap = F.unix_timestamp("at") - F.unix_timestamp(F.lag("at").over(in_order))
    sessions = (
        parsed(spark)
        .select("event_id", "user", "at", F.coalesce(gap > SESSION_GAP_SECONDS, F.lit(True)).alias("is_first"))
        .select("user", "at", F.sum(F.col("is_first").cast("int")).over(in_order).alias("session"))
        .groupBy("user", "session")
        .agg(F.min("at").alias("start"), F.max("at").alias("end"), F.count("*").alias("events"))
    )
    seconds = F.unix_timestamp("end") - F.unix_timestamp("start")
    by_day = sessions.groupBy(F.to_date("start").alias("day"))
    return by_day.agg(F.count("*").alias("sessions"), F.avg("events").alias("events"), F.avg(seconds).alias("seconds"))


def typical_delays(spark: SparkSession) -> DataFrame:
    """Return the delay until events are received by device, without extremes, computed by a pandas function."""

    def trimmed(group: pd.DataFrame) -> pd.DataFrame:
        delay = group["delay"].astype("float64")
        inner = delay[delay.between(delay.quantile(0.05), delay.quantile(0.95))]
        return group.iloc[:1][["os", "kind"]].assign(events=len(group), mean=inner.mean(), median=inner.median())

    delay = F.unix_timestamp("received") - F.unix_timestamp("at")
    events = parsed(spark).where("NOT device.bot").select("device.os", "kind", delay.alias("delay"))
    schema = "os STRING, kind STRING, events BIGINT, mean DOUBLE, median DOUBLE"
    return events.groupBy("os", "kind").applyInPandas(trimmed, schema)


def hosts_by_day(spark: SparkSession) -> DataFrame:
    """Return the number of events of each host and day; an Arrow function extracts the host."""

    def with_host(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            address = pc.utf8_lower(batch["page"])
            host = pc.struct_field(pc.extract_regex(address, "^https?://(?P<host>[^/]+)"), "host")
            yield pa.RecordBatch.from_arrays([batch["day"], batch["user"], host], ["day", "user", "host"])

    pages = parsed(spark).select(F.to_date("at").alias("day"), "user", "page")
    hosts = pages.mapInArrow(with_host, "day DATE, user BIGINT, host STRING")
    return hosts.groupBy("day", "host").agg(F.count("*").alias("events"), F.count_distinct("user").alias("users"))


QUERIES = {
    "E1": events_by_day,
    "E2": revenue_by_article,
    "E3": sessions_by_day,
    "E4": typical_delays,
    "E5": hosts_by_day,
}
