"""Writes Parquet files with several writers, codecs, encodings and schemas, from a short description of each column and file.

A column is described by its kind, a flavour and its name, such as ``date extreme a b``. A file is described by its writer
and further words, such as ``arrow rows=40 codec=zstd groups=3``; `tests.generated.odd_tables` draws both.
"""

from __future__ import annotations

import math
import random
import struct
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_EPOCH = date(1970, 1, 1).toordinal()
_I = {bits: (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (8, 16, 32, 64)}
_TEXTS = ["", "a", "A", "ab", "b", "Zz", "x, y", "it's", '"q"', "é", " a "]
_ODD_TEXTS = ["", "\0", "a\0b", "😀", "é", "a\nb", "\\", "%", "_", "'", '"', "\ufffd", "ﬁ", "İ", "a" * 300, "\ufeff"]
_ODD_BYTES = [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"ok"]
_NANS = [0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001]
_DAYS = [-141_438, -141_437, -141_436, -141_430, -141_428, -141_427, -719_528, -719_529, -719_162, -719_163, -719_893]
"""Days around October 1582, and around the years 0 and 1."""


def _decimals(precision: int, scale: int) -> tuple[list, list]:
    def of(digits: int) -> Decimal:
        return Decimal(f"{digits}E-{scale}")  # exact, regardless of the precision of the context

    largest = 10**precision - 1
    return [of(n) for n in (0, 1, -1, 5, 10, 25, 99, -70)], [of(largest), of(-largest), of(0), of(1)]


def _ints(bits: int) -> tuple[list, list]:
    low, high = _I[bits]
    return [0, 1, 2, 3, 7, -1, -5, 11], [low, high, low + 1, high - 1, 0, -1]


def _unsigned(bits: int) -> tuple[list, list]:
    return [0, 1, 2, 7, 100], [0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1]


_FLOATS = ([0.0, 1.5, -2.25, 3.0, 0.1], [-0.0, 0.0, float("inf"), float("-inf"), float("nan"), 1e-300, -1e300])
_DATES = ([0, 1, 31, 365, 19_782, 20_000], [2**31 - 1, -(2**31) + 1, -(2**31), 2**31 - 2, 2_932_896, *_DAYS])

KINDS: dict[str, tuple[Any, str, tuple[list, list]]] = {
    "bool": (pa.bool_(), "boolean", ([True, False], [True, False])),
    "i8": (pa.int8(), "tinyint", _ints(8)),
    "i16": (pa.int16(), "smallint", _ints(16)),
    "i32": (pa.int32(), "int", _ints(32)),
    "i64": (pa.int64(), "bigint", _ints(64)),
    "u8": (pa.uint8(), "smallint", _unsigned(8)),
    "u16": (pa.uint16(), "int", _unsigned(16)),
    "u32": (pa.uint32(), "bigint", _unsigned(32)),
    "u64": (pa.uint64(), "decimal(20,0)", _unsigned(64)),
    "f32": (pa.float32(), "float", (_FLOATS[0], [v for v in _FLOATS[1] if not 0 < abs(v) < 1e-40 and abs(v) != 1e300])),
    "f64": (pa.float64(), "double", _FLOATS),
    "d5": (pa.decimal128(5, 2), "decimal(5,2)", _decimals(5, 2)),
    "d15": (pa.decimal128(15, 2), "decimal(15,2)", _decimals(15, 2)),
    "d18": (pa.decimal128(18, 0), "decimal(18,0)", _decimals(18, 0)),
    "d38": (pa.decimal128(38, 6), "decimal(38,6)", _decimals(38, 6)),
    "d380": (pa.decimal128(38, 0), "decimal(38,0)", _decimals(38, 0)),
    "date": (pa.date32(), "date", _DATES),
    "text": (pa.string(), "string", (_TEXTS, _ODD_TEXTS)),
    "dict": (pa.dictionary(pa.int32(), pa.string()), "string", (_TEXTS, _ODD_TEXTS)),
    "bytes": (pa.binary(), "binary", ([b"", b"a", b"\0"], _ODD_BYTES)),
    "ts": (pa.timestamp("us", "UTC"), "timestamp", ([0, 1, 10**15], [-(10**17), 10**17])),
    "ntz": (pa.timestamp("ms"), "timestamp_ntz", ([0, 1, 10**12], [-(10**14), 10**14])),
    "null": (pa.null(), "void", ([None], [None])),
    "list": (pa.list_(pa.int32()), "array<int>", ([[1], [], [1, 2]], [[None], []])),
    "struct": (pa.struct([("a", pa.int32())]), "struct<a:int>", ([{"a": 1}, {"a": None}], [{"a": 2}])),
}
"""The kinds of columns: their types in Arrow and Spark, ordinary values, and extreme values."""
ENCODINGS = {
    "delta": {"i": "DELTA_BINARY_PACKED", "date": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"},
    "lengths": {"text": "DELTA_LENGTH_BYTE_ARRAY", "i": "PLAIN"},
    "split": {"i": "BYTE_STREAM_SPLIT", "f": "BYTE_STREAM_SPLIT"},
    "plain": dict.fromkeys(("i", "f", "date", "text"), "PLAIN"),
}


def parse_column(column: str) -> tuple[str, str, str]:
    """Return the kind, flavour and name of a described column."""
    kind, flavour, name = column.split(" ", 2)
    return kind, flavour, name


def values(kind: str, flavour: str, rows: int, rng: random.Random) -> list:
    """Draw the values of a column."""
    usual, extreme = KINDS[kind][2]
    match flavour:
        case "empty":
            return [None] * rows
        case "constant":
            return [rng.choice(usual)] * rows
        case "nonull":
            return [rng.choice(usual) for _ in range(rows)]
        case "extreme":
            usual = usual[:2] + extreme * 2
        case "old":
            usual = _DAYS + usual[:1]
        case "infinite":  # DuckDB's infinities
            usual = [0, 1, 19_782, extreme[0]] if rng.random() < 0.7 else [0, 1, 19_782, extreme[1]]
        case "broken":
            usual = _ODD_BYTES
        case "sorted":
            return sorted((rng.choice(usual) for _ in range(rows)), key=lambda v: (v is None, v))
    return [None if rng.random() < 0.12 else rng.choice(usual) for _ in range(rows)]


def _array(kind: str, column_values: list) -> pa.Array:
    arrow_type = KINDS[kind][0]
    if kind == "date":
        return pa.array(column_values, pa.int32()).view(arrow_type)
    if kind == "f64":
        bits = [
            0 if v is None else _NANS[n % 3] if math.isnan(v) else struct.unpack("<Q", struct.pack("<d", v))[0]
            for n, v in enumerate(column_values)
        ]
        return pa.array(np.array(bits, np.uint64).view(np.float64), mask=np.array([v is None for v in column_values]))
    if kind in {"text", "dict"} and any(isinstance(v, bytes) for v in column_values):
        plain = pa.array(column_values, pa.binary()).view(pa.string())
        return plain.dictionary_encode() if kind == "dict" else plain
    if kind in {"ts", "ntz"}:
        return pa.array(column_values, pa.int64()).cast(arrow_type)
    return pa.array(column_values, arrow_type)


class File:
    """A described file: its writer, and words with an optional value."""

    def __init__(self, text: str) -> None:
        self.writer, *words = text.split(" ")
        self.words = {word.split("=", 1)[0]: word.partition("=")[2] for word in words}

    def has(self, word: str) -> bool:
        return word in self.words

    def number(self, word: str, default: int) -> int:
        return int(self.words.get(word, default))


def write(spark: Any, folder: Path, columns: list[str], files: list[str], seed: int) -> None:
    """Write the files of a table into a folder."""
    for number, text in enumerate(files):
        file = File(text)
        rng = random.Random(f"{seed} {number}")
        target = folder / file.words.get("in", "")
        target.mkdir(parents=True, exist_ok=True)
        path = target / f"part-{number}.parquet"
        table = _table(columns, file, f"{seed} {number}")
        if file.writer == "spark":
            _by_spark(spark, table, path, file, folder.parent / f"staged-{number}")
        elif file.writer == "duckdb":
            _by_duckdb(table, path, file)
        else:
            _by_arrow(table, path, file, [parse_column(column) for column in columns])
        _damage(path, file, rng)


def _table(columns: list[str], file: File, seed: str) -> pa.Table:
    rows = file.number("rows", 40)
    fields, arrays = [], []
    for number, column in enumerate(columns):
        kind, flavour, name = parse_column(column)
        column_rng = random.Random(f"{seed} {column}")  # independent of the other columns
        if file.has("drop") and number == file.number("drop", 0) % len(columns):
            continue
        if file.has("other") and number == file.number("other", 0) % len(columns):
            kind = {"i32": "i64", "i64": "i32", "d15": "d38", "text": "bytes", "i8": "i32", "date": "ts"}.get(
                kind, kind
            )
            flavour = flavour if kind in {"i32", "i64"} else "plain"
        array = _array(kind, values(kind, flavour, rows, column_rng))
        file_name = name.upper() if file.has("upper") else name
        fields.append(pa.field(file_name, array.type, nullable=flavour not in {"nonull", "constant"}))
        arrays.append(array)
    if file.has("swap"):
        fields, arrays = fields[::-1], arrays[::-1]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _by_arrow(table: pa.Table, path: Path, file: File, columns: list[tuple[str, str, str]]) -> None:
    metadata = {}
    if file.has("legacy"):
        metadata |= {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
    if file.has("spark2"):
        metadata |= {"org.apache.spark.version": "2.4.8"}
    table = table.replace_schema_metadata(metadata or None)
    options: dict[str, Any] = {"compression": file.words.get("codec", "snappy")}
    encoding = ENCODINGS.get(file.words.get("encoding", ""))
    if encoding is not None:
        kinds = {name.upper() if file.has("upper") else name: kind for kind, _, name in columns if "." not in name}
        encodings = {name: encoding.get(kind, encoding.get(kind.rstrip("0123456789"))) for name, kind in kinds.items()}
        encodable = {field.name for field in table.schema if str(field.type) != "binary"}
        encodings = {name: code for name, code in encodings.items() if code is not None and name in encodable}
        options |= {"use_dictionary": False, "column_encoding": encodings}
    pq.write_table(
        table,
        path,
        row_group_size=max(table.num_rows // file.number("groups", 1), 1),
        version=file.words.get("version", "2.6"),
        data_page_version=file.words.get("page", "1.0"),
        write_statistics=not file.has("nostats"),
        write_page_index=file.has("index"),
        write_page_checksum=file.has("checksum"),
        store_decimal_as_integer=file.has("intdec"),
        use_deprecated_int96_timestamps=file.has("int96"),
        store_schema=not file.has("noschema"),
        **options,
    )


def _by_duckdb(table: pa.Table, path: Path, file: File) -> None:
    import duckdb

    codec, version = file.words.get("codec", "snappy"), "V2" if file.has("page") else "V1"
    with duckdb.connect() as connection:
        connection.register("written", table)
        connection.execute(
            f"COPY written TO '{str(path).replace(chr(39), chr(39) * 2)}' (FORMAT parquet, CODEC '{codec}', PARQUET_VERSION {version})"
        )


def _by_spark(spark: Any, table: pa.Table, path: Path, file: File, staged: Path) -> None:
    staged.mkdir()
    pq.write_table(table, staged / "read.parquet")
    frame = spark.read.parquet(str(staged / "read.parquet")).coalesce(1)
    frame.write.option("compression", file.words.get("codec", "snappy")).parquet(str(staged / "written"))
    (written,) = (staged / "written").glob("*.parquet")
    written.rename(path)


def _damage(path: Path, file: File, rng: random.Random) -> None:
    """Damage a file so that it cannot be read, or not completely."""
    if file.has("cut"):
        path.write_bytes(path.read_bytes()[:-20])
    if file.has("garbage"):
        path.write_bytes(b"PAR1" + rng.randbytes(200))
    if file.has("nothing"):
        path.write_bytes(b"")
    if file.has("flip"):  # a byte of the first page
        content = bytearray(path.read_bytes())
        content[min(60, len(content) - 1)] ^= 0x55
        path.write_bytes(bytes(content))
