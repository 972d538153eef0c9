"""The tables of the command `penstock demo`: orders, most of which are uniform, and a customer with very many."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

TABLES = ("customers", "orders", "products")
DEFAULT_ORDERS = 5_000_000
"""Number of orders. Their file is larger than 64 MiB, below which Spark runs a query without DuckDB unchanged."""
_VERSION = 1
"""Version of the data, in the name of the default folder: increase it if the data change, to create them again."""
_ORDERS_PER_CUSTOMER = 2
_PRODUCTS = 50_000
_COUNTRIES = 100
_HOT_CUSTOMER = 7
_HOT_SHARE = 0.3
"""The customer with this share of all orders, as a marketplace might have."""
_SEGMENTS = ("business", "consumer", "public sector", "reseller")
_FIRST_DAY, _DAYS = "2024-01-01", 730
_CHUNK = 1_000_000
"""Orders that are created at a time, which limits the memory."""


def default_folder() -> Path:
    """Return the folder of the user's cache in which the tables stay for further runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / f"demo-{_VERSION}"


def table_files(folder: Path) -> dict[str, Path]:
    """Return the Parquet files of the tables in a folder, which may not exist yet."""
    return {name: folder / f"{name}.parquet" for name in TABLES}


def create_tables(folder: Path, orders: int) -> None:
    """Create the Parquet files of the tables in a folder. The files appear when all of them are complete."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as unfinished:
        _write_tables(Path(unfinished), orders)
        for name, file in table_files(folder).items():
            (Path(unfinished) / f"{name}.parquet").replace(file)


def _write_tables(folder: Path, orders: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(2024)
    customers = orders // _ORDERS_PER_CUSTOMER
    pq.write_table(_customers(random, customers), folder / "customers.parquet")
    product_ids = np.arange(_PRODUCTS, dtype=np.int32)
    categories = np.char.add("category ", (product_ids % 40).astype(str))
    pq.write_table(pa.table({"product_id": product_ids, "category": categories}), folder / "products.parquet")
    writer = None
    for chunk in _order_chunks(random, orders, customers):
        writer = writer or pq.ParquetWriter(folder / "orders.parquet", chunk.schema, store_decimal_as_integer=True)
        writer.write_table(chunk)
    if writer:
        writer.close()


def _customers(random: np.random.Generator, count: int) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    ids = np.arange(count)
    countries = np.char.add("country ", np.arange(_COUNTRIES).astype(str))
    return pa.table(
        {
            "customer_id": ids,
            "name": np.char.add("customer number ", ids.astype(str)),
            "segment": np.array(_SEGMENTS)[random.integers(len(_SEGMENTS), size=count)],
            "country": countries[random.integers(_COUNTRIES, size=count)],
        }
    )


def _order_chunks(random: np.random.Generator, orders: int, customers: int) -> Iterator[pa.Table]:
    """Yield the orders, sorted by day; the ids of customers are random, except those of the hot customer."""
    import numpy as np
    import pyarrow as pa

    for start in range(0, orders, _CHUNK):
        ids = np.arange(start, min(start + _CHUNK, orders))
        customer_ids = random.integers(customers, size=len(ids))
        customer_ids[random.random(len(ids)) < _HOT_SHARE] = _HOT_CUSTOMER
        yield pa.table(
            {
                "order_id": ids,
                "day": (np.datetime64(_FIRST_DAY) + ids * _DAYS // orders).astype("datetime64[D]"),
                "customer_id": customer_ids,
                "product_id": random.integers(_PRODUCTS, size=len(ids), dtype=np.int32),
                "quantity": random.integers(1, 10, size=len(ids), dtype=np.int32),
                "amount": _decimals(random.integers(100, 100_000, size=len(ids))),
            }
        )


def _decimals(cents: np.ndarray) -> pa.Array:
    """Return amounts as decimals with two digits after the point; Arrow stores them in 128 bits."""
    import numpy as np
    import pyarrow as pa

    words = np.zeros((len(cents), 2), np.int64)
    words[:, 0] = cents
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), [None, pa.py_buffer(words)])
