"""Tables of `real_life.py` as Parquet: hits of a website, tables of groups and of joins, and events as JSON.

The rows depend only on their number: each chunk of rows has its own random generator with a fixed seed. The name of the
folder contains a digest of this file, so that a changed generator writes new data.
"""

import datetime as dt
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

VERSION = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
DEFAULT_ROWS = 12_000_000
CHUNK_ROWS = 500_000
"""The number of rows of a chunk, which is a row group of the file."""
MIN_GROUP_ROWS = 1000
"""With fewer rows, the small tables would be empty."""
SEED = 20_260_301
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
DAYS = 31
WORDS = (
    "north", "south", "river", "market", "garden", "bridge", "winter", "summer", "quiet", "silver", "paper", "window",
    "station", "harbour", "valley", "forest", "coffee", "bicycle", "engine", "camera", "kitchen", "holiday", "weather",
    "ticket", "museum", "theatre", "café", "straße", "мост", "река", "ciudad", "ponte", "lumière",
)  # fmt: skip
SECTIONS = ("news", "shop", "maps", "forum", "video", "jobs", "travel", "music", "photos", "recipes", "sport", "help")
HOSTS = tuple(f"{prefix}{word}.example" for word in ("maps", "daily", "open", "metro", "prime") for prefix in ("", "www.", "m.", "eu."))  # fmt: skip
MODELS = ("", "", "", "P1", "P1 Plus", "Nova 3", "Nova 5", "Tab 10", "Mini", "Fold")
Chunk = Callable[[np.random.Generator, np.ndarray], dict[str, object]]
"""A function from a random generator and numbers of rows to columns."""


def row_counts(rows: int) -> dict[str, int]:
    """Return the number of rows of each table; `rows` is the number of hits."""
    group_rows = max(rows * 5 // 3, MIN_GROUP_ROWS)
    return {
        "hits": rows,
        "samples": group_rows,
        "facts": group_rows,
        "small": max(group_rows // 1_000_000, 10),
        "medium": max(group_rows // 1000, 100),
        "big": group_rows,
        "events": max(rows // 6, 1),
    }


def chunks(counts: Mapping[str, int]) -> dict[str, Chunk]:
    """Return the function of each table; `counts` are the numbers of rows."""
    keys = [counts[name] for name in ("small", "medium", "big")]
    order = np.random.default_rng(SEED).permutation(counts["big"])
    return {
        "hits": lambda random, row: hits(random, row, counts["hits"]),
        "samples": lambda random, row: samples(random, row, counts["samples"]),
        "facts": lambda random, row: facts(random, row, keys),
        "small": lambda random, row: dimension(random, row + keys[0] // 10, keys[:1]),
        "medium": lambda random, row: dimension(random, row + keys[1] // 10, keys[:2]),
        "big": lambda random, row: dimension(random, order[row] + keys[2] // 10, keys),
        "events": lambda random, row: events(random, row, counts["events"]),
    }


def make(folder: Path, rows: int) -> Path:
    """Write the tables into a folder below `folder`, unless it has them; return this folder."""
    target = folder / f"real_life-{rows}-{VERSION}"
    if (target / ".done").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    print(f"Generating {rows:,} hits and the other tables in {target}", flush=True)
    counts = row_counts(rows)
    for table_number, (name, chunk) in enumerate(chunks(counts).items()):
        writer = None
        for first in range(0, counts[name], CHUNK_ROWS):
            random = np.random.default_rng([SEED, table_number, first])
            table = pa.table(chunk(random, np.arange(first, min(first + CHUNK_ROWS, counts[name]))))
            writer = writer or pq.ParquetWriter(target / f"{name}.parquet", table.schema)
            writer.write_table(table)
        writer.close()
    (target / ".done").touch()
    return target


def hashed(numbers: np.ndarray) -> np.ndarray:
    """Return a positive 64-bit hash of each number (SplitMix64)."""
    value = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ (value >> np.uint64(shift))) * np.uint64(factor)
    return ((value ^ (value >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)


def skewed(random: np.random.Generator, size: int, values: int) -> np.ndarray:
    """Return random numbers below `values`; small numbers are frequent."""
    return (values * random.random(size) ** 3).astype(np.int64)


def choose(texts: Sequence[str], numbers: np.ndarray) -> pa.Array:
    """Return a text for each number."""
    return pa.array(texts).take(pa.array(numbers % len(texts)))


def join(*parts: object) -> pa.Array:
    """Concatenate texts and numbers by row."""
    return pc.binary_join_element_wise(*(part if isinstance(part, str) else pc.cast(part, pa.string()) for part in parts), "")  # fmt: skip


def id_texts(numbers: np.ndarray, digits: int) -> pa.Array:
    """Return texts such as ``id042``."""
    return join("id", pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), digits, "0"))


def addresses(pages: np.ndarray) -> pa.Array:
    """Return the URL of each page."""
    digest = hashed(pages)
    words = (choose(WORDS, digest), "-", choose(WORDS, digest // 64), "-", pa.array(pages))
    return join(
        choose(("https://", "https://", "http://"), digest // 7), choose(HOSTS, digest // 3), "/",
        choose(SECTIONS, digest // 11), "/", *words, choose(("", ".html", "?page=2", "?utm_source=mail&utm_campaign=spring"), digest // 5),
    )  # fmt: skip


def hits(random: np.random.Generator, row: np.ndarray, rows: int) -> dict[str, object]:
    """Return hits in the order of their time, with three quarters of them on few pages."""
    size = len(row)
    user, page, origin = (skewed(random, size, max(rows // divisor, 1)) for divisor in (6, 4, 10))
    phrase = skewed(random, size, max(rows // 20, 1))
    site = skewed(random, size, 5000)
    seconds = (row * (DAYS * 86_400) // rows) + random.integers(0, 3, size)
    time = np.datetime64(START.replace(tzinfo=None), "us") + seconds.astype("timedelta64[s]")
    no_phrase, no_referrer, no_campaign = (random.random(size) < share for share in (0.87, 0.4, 0.96))
    width = choose(("360", "390", "412", "768", "1280", "1366", "1536", "1920", "2560"), hashed(user) // 17)
    phrases = join(choose(WORDS, phrase), " ", choose(WORDS, hashed(phrase)), " ", choose(SECTIONS, hashed(phrase) // 9), " ", phrase)  # fmt: skip

    headings = choose([section.title() for section in SECTIONS], hashed(page) // 11)
    titles = join(headings, ": ", choose(WORDS, page), " ", choose(WORDS, page // 64))

    def flags(share: float) -> np.ndarray:
        return (random.random(size) < share).astype(np.int16)

    return {
        "hit_id": hashed(row + (1 << 40)),
        "event_time": pa.array(time, pa.timestamp("us", "UTC")),
        "event_date": pa.array(time.astype("datetime64[D]")),
        "client_time": pa.array(time + random.integers(-3600, 3600, size).astype("timedelta64[s]")),
        "user_id": hashed(user),
        "site_id": site.astype(np.int32),
        "region_id": skewed(random, size, 3000).astype(np.int32),
        "ip": (hashed(user) >> 32).astype(np.int32),
        "url": addresses(page),
        "url_hash": hashed(page),
        "title": titles,
        "referrer": pc.if_else(pa.array(no_referrer), "", addresses(origin)),
        "referrer_hash": np.where(no_referrer, 0, hashed(origin)),
        "search_phrase": pc.if_else(pa.array(no_phrase), "", phrases),
        "engine_id": np.where(no_phrase, 0, 1 + skewed(random, size, 90)).astype(np.int16),
        "campaign_id": np.where(no_campaign, 0, 1 + skewed(random, size, 60)).astype(np.int16),
        "source_id": random.integers(-1, 10, size).astype(np.int16),
        "vendor_id": (hashed(user) % 90).astype(np.int16),
        "phone_model": choose(MODELS, hashed(user) // 13),
        "screen_width": pc.cast(width, pa.int16()),
        "window_width": random.integers(300, 2600, size).astype(np.int16),
        "window_height": random.integers(300, 1500, size).astype(np.int16),
        "is_reload": flags(0.1),
        "is_internal": flags(0.05),
        "is_link": flags(0.1),
        "is_download": flags(0.02),
        "os_id": (hashed(user) % 40).astype(np.int16),
        "browser_id": (hashed(user) % 70).astype(np.int16),
        "browser_version": join(hashed(user) % 140, ".", hashed(user) % 10),
        "language": choose(("en", "de", "fr", "es", "pt", "ru", "ja", "zh"), hashed(user) // 19),
        "load_ms": (40 + random.exponential(400, size)).astype(np.int32),
    }


def samples(random: np.random.Generator, row: np.ndarray, rows: int) -> dict[str, object]:
    """Return rows with three textual and three numeric keys, of 100 groups or of 100 rows each, and three doubles."""
    size, many = len(row), max(rows // 100, 1)
    return {
        "id1": id_texts(random.integers(1, 101, size), 3),
        "id2": id_texts(random.integers(1, 101, size), 3),
        "id3": id_texts(random.integers(1, many + 1, size), 10),
        "id4": random.integers(1, 101, size).astype(np.int32),
        "id5": random.integers(1, 101, size).astype(np.int32),
        "id6": random.integers(1, many + 1, size).astype(np.int32),
        "v1": random.integers(1, 6, size).astype(np.float64),
        "v2": random.integers(1, 16, size).astype(np.float64),
        "v3": np.round(random.random(size) * 100, 6),
    }


def facts(random: np.random.Generator, row: np.ndarray, keys: Sequence[int]) -> dict[str, object]:
    """Return rows with a key of each of the other tables, which have nine tenths of the keys."""
    numbers = [random.integers(1, count + 1, len(row)) for count in keys]
    return key_columns(numbers) | {"v1": np.round(random.random(len(row)) * 100, 6)}


def dimension(random: np.random.Generator, row: np.ndarray, keys: Sequence[int]) -> dict[str, object]:
    """Return a row for each key; the last of `keys` is the table's own, the others are those of smaller tables."""
    numbers = [*(random.integers(1, count + 1, len(row)) for count in keys[:-1]), row + 1]
    return key_columns(numbers) | {"v2": np.round(random.random(len(row)) * 100, 6)}


def key_columns(numbers: Sequence[np.ndarray]) -> dict[str, object]:
    """Return keys as the numbers id1 to id3 and as the texts id4 to id6."""
    columns: dict[str, object] = {f"id{index}": values.astype(np.int32) for index, values in enumerate(numbers, 1)}
    return columns | {f"id{index}": join("id", pa.array(values)) for index, values in enumerate(numbers, 4)}


def events(random: np.random.Generator, row: np.ndarray, rows: int) -> dict[str, object]:
    """Return events of users as JSON, in the order in which they were received."""
    size = len(row)
    seconds = row * (DAYS * 86_400) // rows
    received = np.datetime64(START.replace(tzinfo=None), "us") + seconds.astype("timedelta64[s]")
    delays = random.integers(0, 600, size).astype("timedelta64[s]")
    users, skus = skewed(random, size, max(rows // 20, 1)), skewed(random, 3 * size, 2000)
    numbers = {
        name: random.integers(0, limit, size).tolist()
        for name, limit in {"kind": 10, "page": 400, "os": 5, "items": 4, "tags": 4}.items()
    }
    quantities, prices = random.integers(1, 5, 3 * size), np.round(random.random(3 * size) * 90 + 1, 2)
    items = [
        {"sku": f"sku-{sku}", "quantity": quantity, "price": price}
        for sku, quantity, price in zip(skus.tolist(), quantities.tolist(), prices.tolist(), strict=True)
    ]
    payloads = [
        json.dumps(
            {
                "user": user,
                "at": at,
                "kind": ("view", "view", "view", "view", "view", "view", "search", "search", "cart", "order")[kind],
                "page": f"HTTPS://{HOSTS[page % len(HOSTS)]}/{SECTIONS[page % len(SECTIONS)]}/{page}",
                "device": {"os": ("android", "ios", "windows", "linux", "macos")[os], "bot": page % 50 == 0},
                "tags": WORDS[page % 16 : page % 16 + tag_count],
                "items": items[3 * index : 3 * index + min(item_count, 3)] if kind > 7 else [],
            },
            ensure_ascii=False,
        )
        for index, (user, at, kind, page, os, item_count, tag_count) in enumerate(
            zip(users.tolist(), np.datetime_as_string(received - delays, "s").tolist(), *numbers.values(), strict=True)
        )
    ]
    return {"event_id": row, "received": pa.array(received, pa.timestamp("us", "UTC")), "payload": payloads}
