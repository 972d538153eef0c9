"""Columns of special values: nulls, extremes, and values that Spark and DuckDB may treat differently."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

_TEXTS = [
    *[None, "", "a", "A", " ", "  a b  ", "\ta\n", "abc", "aXbXc", "é", "e\u0301", "😀x", "ß", "İ", "ΑΣ", "\ufb01"],
    *["a,b,,c", "a.b.c", "%_", "a%b", "\\", "it's", "x\u00a0y", "0", "-12", "12.5", "a\r\nb", "aa", "ab12cd", "b\r\n"],
    *["user@mail.example", "日本語", "\u2028", "\x0b", "a\u0085b", "😀😃", "y" * 300, "abab", "-", "AbC dEf", "c\n"],
    *[
        "\U0010ffff",
        "z\x00z",
        "~",
        "a b\tc",
        "x" * 57,
        "y" * 58,
        "\u212a",
        "\u017f",
        "_a_",
        "éa",
        "a_b",
        "[a]",
        "$1",
        "ab\\1",
    ],
]
_NUMBERS = [
    *[None, "", " 12 ", "12", "-7", "+5", "007", "12.7", "1e2", "0x10", "1_000", "abc", "2147483647", "2147483648"],
    *["-2147483648", "9223372036854775807", "9223372036854775808", "99999999999999999999", "1.", ".", " ", ".5", "-0"],
    *[
        "\t3\n",
        "3\u00a0",
        "128",
        "-128",
        "-129",
        "32768",
        "1.005",
        "-1.005",
        "0.5",
        "NaN",
        "Infinity",
        "inf",
        "1d",
        "1f",
    ],
    *[
        "--1",
        "+",
        "1 2",
        "\uff10",
        "0.1",
        "123456789.987654321",
        "1e400",
        "1e-400",
        "4.9E-324",
        "-0.0",
        "1E+5",
        "99.95",
    ],
    *["0.30000000000000004", "1.7976931348623157e308", "16777217", "0.000000059604645", "-1", "9" * 28, "9" * 30],
]
_DATES = [
    *[None, "", "2024-02-29", "2023-02-29", "2024-2-9", "2024", "2024-01", "2024/01/05", " 2024-01-05 ", "9999-12-31"],
    *["2024-01-05T00:00:00", "2024-01-05 10:11:12", "0001-01-01", "10000-01-01", "+10000-01-01", "-0001-01-01"],
    *["1582-10-10", "24-01-05", "epoch", "today", "20240105", "2024-13-01", "2024-00-10", "0000-01-01", "2024-01-05x"],
    *[
        "02024-01-05",
        "2024-01-5",
        "now",
        "2024-1-05 ",
        "2024-01-05Z",
        "2024-04-31",
        "1900-02-29",
        "2000-02-29",
        "1500-02-29",
    ],
]
_FLAGS = [
    *[None, "true", "TRUE", " true ", "t", "f", "yes", "no", "y", "n", "1", "0", "on", "off", "", "False", "tru", "T"],
    *["Y", "N", "N ", "\tfalse\n", "ye\u017f", "oui"],
]
_INTS = [
    *[None, 0, 1, -1, 2, -2, 3, 5, 7, 10, 31, 32, 33, 64, 65, 100, -100, 127, -128, 255, 256, 2147483647, -2147483648],
    *[1000000, -2147483647, 16777217],
]
_SMALL_INTS = [None, 0, 1, -1, 2, -2, 3, -3, 4, 5, 7, 12, -10, 400, -400]
_LONGS = [
    *[None, 0, 1, -1, 2, -3, 10, 255, 9223372036854775807, -9223372036854775808, 2147483648, -2147483649],
    *[4503599627370497, 9007199254740993, -9007199254740993, 1234567890123, 97, 65, 256, 128512],
]
_DOUBLES = [
    *[None, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, math.nan, math.inf, -math.inf, 1e7, 1e-5, 1e20, -1e20],
    *[2147483647.5, -2147483648.9, 2147483648.0, 9.2e18, 9223372036854774784.0, -9223372036854775808.0, 1.005, 0.1],
    *[1 / 3, 1e308, 5e-324, 123456789.0, 2.0, 4.0, 1e15, -7.25, 9007199254740993.0, 127.9, -128.5, 32767.5, 3.4e38],
]
_FLOATS = [None, 0.0, -0.0, 1.5, -2.5, math.nan, math.inf, -math.inf, 1e10, 3.4e38, 0.1, 16777216.0]
_DECIMALS = ["0.00", "1.00", "-1.00", "0.05", "-0.05", "2.50", "-2.50", "99999999.99", "-99999999.99", "1.45", "1.55"]
_WIDE_DECIMALS = [
    *["0E-10", "1.0000000000", "-1.5000000000", f"{'9' * 28}.{'9' * 10}", f"-{'9' * 28}.{'9' * 10}", "0.0000000001"],
    *["-0.0000000001", "0.0000010000", "123456789012345678.9876543210", "0.0005000000", "-0.0015000000"],
]
_DAYS = [
    *[(1970, 1, 1), (2024, 2, 29), (2023, 2, 28), (2024, 1, 31), (2024, 12, 31), (2020, 12, 30), (2021, 1, 3)],
    *[(1582, 10, 4), (1582, 10, 15), (1582, 10, 10), (1, 1, 1), (1, 12, 31), (9999, 12, 31), (9999, 1, 31)],
    *[(1900, 2, 28), (1969, 12, 31), (4, 2, 29), (2024, 3, 31), (2024, 10, 27), (1999, 1, 4), (2000, 5, 31)],
    *[(1600, 2, 29), (2024, 6, 30), (2026, 11, 29), (2026, 11, 28), (2026, 11, 27), (2026, 11, 26), (2026, 11, 25)],
]
_JSON = [
    None,
    "",
    " ",
    "{}",
    '{"a":"x"}',
    '{"a":-0,"b":7}',
    '{"a":12345678901234567890}',
    '{"a":123456789012345678901}',
    '{"a":1.0}',
    '{"a":null,"b":"n"}',
    '{"b":{"a":"y"}}',
    '{"a":{"c":1}}',
    '{"a":true,"b":false}',
    '[{"a":1}]',
    '"s"',
    '{"a":"\\u00e9\\n\\ud83d\\ude00"}',
    '{"a":1,"a":2}',
    '{"a":null,"a":2}',
    '{"a":"x"}  ',
    '{"a":"x"} y',
    "{'a':1}",
    '{"a":1e2}',
    '{"a":NaN}',
    '{"a":1,}',
    '{"\\u0061":1}',
    '{"a":[1]}',
    '{"a":"\\ud83d"}',
    '{"a":"q\tb"}',
    '{"a":01}',
    '{"b":[1,2,],"a":2}',
    '{"a":1,"b":nan}',
    '{"a":1}{"a":2}',
    "{a:1}",
    "[1,2",
    "null",
    '{"a":"\\/ \\\\"}',
    '{"A":1}',
    '{"long_name1":"v","a":3}',
    '{"\\u0061":null,"a":2}',
    '{"a":"é😀","b":-5}',
    ' { "b" : "z" , "a" : "w" } ',
    '{"a":""}',
    '{"a.b":1,"a":5}',
    '{"a":1.50,"b":-0.0}',
    '{"a":-0.0,"b":2.5e-310}',
    '{"a":1e400}',
    '{"a":4.35,"b":1.7976931348623157e308}',
    '{"a":9223372036854775808,"b":9223372036854775807}',
    '{"a":2147483648,"b":-2147483648}',
    '{"a":"2024-02-29"}',
    '{"a":"2024-02-30"}',
    '{"a":"0001-01-01"}',
    '{"a":"2024-02-29T23:59:59"}',
    '{"a":"2024-03-31 02:30:00.123456"}',
    '{"a":"2024-10-27T02:30:00.5Z"}',
    '{"a":"2024-10-27T02:30:00+05:45"}',
    '{"a":"1800-01-01T00:00:00"}',
    '{"a":"2024-02-29T24:00:00"}',
    '{"a":"2024-02-29 1:2:3"}',
    '{"a":"2024-02-29T12:00:60"}',
    '{"a":{"b":"x","c":5}}',
    '{"a":{"b":null,"c":-1,"d":[1]}}',
    '{"a":{"b":"x","b":"y"}}',
    '{"a":{"b":1,"c":"2"}}',
    '{"a":[]}',
    '{"a":["x",null,"y\\n"]}',
    '{"a":[{"b":"x"},null,{"c":2}]}',
    '{"a":[{"b":"x"},"y"]}',
    '{"a":[1,"x"],"b":[[1]]}',
    '{"a":[2147483648]}',
    '{"a":[7,null,-0]}',
    '{"a":[1.5]}',
    '\\n{"a":"1","b":true}',
    '{"a":false,"b":"t"}',
    '{"b":null,"a":null}',
    '{"a":"x","b":"y","b":null}',
    '{"a":"x","\\u0062":"y","b":"z"}',
    '{"a":"Hello, Nancy","b":", inf"}',
    '\t{"a":"x"}',
    '{"a":"nul\\u0000l"}',
]
_TIMES = [
    None,
    *map(
        datetime.fromisoformat,
        (
            "1970-01-01T00:00:00",
            "1969-12-31T23:59:59.999999",
            "2024-03-31T01:00:00",
            "2024-10-27T00:59:59.999999",
            "2024-10-27T01:00:00",
            "2024-03-31T00:59:59",
            "2024-02-29T23:30:00",
            "1980-04-06T02:00:00",
            "1945-05-24T00:00:00",
            "2037-12-31T23:59:59.500000",
            "1999-12-31T22:59:59.123456",
            "2011-12-30T10:00:00",
        ),
    ),
]
"""Instants around changes of the clock in Europe/Berlin, and others."""
_COMMON_DAYS = [None, date(2024, 1, 31), date(2023, 2, 28), date(1970, 1, 1), date(1582, 10, 4), date(2000, 12, 31)]

SPECIAL: dict[str, tuple[Sequence[Any], pa.DataType]] = {
    "str1": (_TEXTS, pa.string()),
    "str2": (_TEXTS[:18], pa.string()),
    "digits": (_NUMBERS, pa.string()),
    "dates": (_DATES, pa.string()),
    "flags": (_FLAGS, pa.string()),
    "byte1": ([None, 0, 1, -1, 127, -128, 5], pa.int8()),
    "short1": ([None, 0, 1, -1, 32767, -32768, 300], pa.int16()),
    "int1": (_INTS, pa.int32()),
    "int2": (_INTS, pa.int32()),
    "small1": (_SMALL_INTS, pa.int32()),
    "long1": (_LONGS, pa.int64()),
    "long2": (_LONGS, pa.int64()),
    "float1": (_FLOATS, pa.float32()),
    "float2": (_FLOATS, pa.float32()),
    "double1": (_DOUBLES, pa.float64()),
    "double2": (_DOUBLES[:16], pa.float64()),
    "dec1": ([None, *map(Decimal, _DECIMALS)], pa.decimal128(10, 2)),
    "dec2": ([None, *map(Decimal, _DECIMALS)], pa.decimal128(10, 2)),
    "wide1": ([None, *map(Decimal, _WIDE_DECIMALS)], pa.decimal128(38, 10)),
    "date1": ([None, *(date(*day) for day in _DAYS)], pa.date32()),
    "date2": (_COMMON_DAYS, pa.date32()),
    "bool1": ([None, True, False], pa.bool_()),
    "bool2": ([None, True, False], pa.bool_()),
    "json1": (_JSON, pa.string()),
    "time1": (_TIMES, pa.timestamp("us", "UTC")),
    "ntz1": (_TIMES, pa.timestamp("us")),
}
"""The special values of each column, and its type. Names that end with 2 are second operands: the rows combine each of
their values with each of the first operand's."""


def special_rows(count: int) -> pa.Table:
    """Return rows of special values; 1,200 rows have all pairs of texts."""
    columns = {"n": pa.array(range(count), pa.int32())}
    for name, (values, kind) in SPECIAL.items():
        first = SPECIAL[name[:-1] + "1"][0] if name.endswith("2") else values
        block = len(first) if name.endswith("2") else 1
        columns[name] = pa.array([values[row // block % len(values)] for row in range(count)], kind)
    return pa.table(columns)


def finite_rows() -> pa.Table:
    """Return rows whose floating-point numbers are finite or NaN, which the statistics of the file ignore."""
    columns = {name: special_rows(12)[name] for name in ("n", *SPECIAL)}
    for name in ("float1", "float2", "double1", "double2"):
        period = 4 if name.endswith("2") else 3
        numbers = [[1.0, 2.0, math.nan, 7.0][row % period] for row in range(12)]
        columns[name] = pa.array(numbers, SPECIAL[name][1])
    return pa.table(columns)


def random_rows(count: int, seed: int = 1) -> pa.Table:
    """Return rows of pseudo-random values, some of which are special."""
    rng = random.Random(seed)
    columns = {"n": pa.array(range(count), pa.int32())}
    for name, (values, kind) in SPECIAL.items():
        columns[name] = pa.array(
            [rng.choice(values) if rng.random() < 0.5 else _random_value(rng, name, kind) for _ in range(count)], kind
        )
    return pa.table(columns)


def _random_json(rng: random.Random) -> Any:
    """Return a pseudo-random value in a JSON text: often the text of a time, as fewer functions accept it."""
    day = f"{rng.randrange(1800, 2100)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
    time = f"{day}{rng.choice(' T')}{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
    moments = [day, time, f"{time}.{rng.randrange(10**6)}", f"{time}{rng.choice(['Z', '+01:00', '-09:30'])}"]
    numbers = [
        7,
        -3,
        rng.getrandbits(rng.randrange(1, 63)),
        rng.uniform(-100, 100),
        rng.gauss(0, 1e9),
        rng.randrange(9) / 8,
    ]
    nested = [{"b": "x", "c": rng.randrange(9)}, {"c": None}, ["x", "y"], [], [{"b": 1}]]
    return rng.choice([*moments, *moments, *numbers, *nested, "x", "", "é", None, True])


def _random_value(rng: random.Random, name: str, kind: pa.DataType) -> Any:
    """Return a pseudo-random value of a column."""
    if name == "digits":
        return f"{rng.choice(['', '-', ' '])}{rng.getrandbits(rng.randrange(1, 70))}{rng.choice(['', '', '.25', '.', 'e3'])}"
    if name == "json1":
        return json.dumps({key: _random_json(rng) for key in rng.sample("abcd", 3)})
    if name == "dates":
        return f"{rng.randrange(1, 10_000):04}-{rng.randrange(1, 13):02}-{rng.randrange(1, 32):02}{rng.choice(['', ' 1', 'T', 'x'])}"
    if name == "small1":
        return rng.randrange(-50, 50)
    if pa.types.is_integer(kind):
        return rng.getrandbits(rng.randrange(1, kind.bit_width)) * rng.choice([1, -1])
    if pa.types.is_floating(kind):
        return rng.choice([rng.uniform(-100, 100), rng.gauss(0, 1e9), float(rng.randrange(1000)) / 8])
    if pa.types.is_decimal(kind):
        return Decimal(rng.getrandbits(rng.randrange(1, 33)) * rng.choice([1, -1])).scaleb(-kind.scale)
    if pa.types.is_date(kind):
        return date(1, 1, 1) + timedelta(rng.randrange(700_000, 760_000))
    if pa.types.is_timestamp(kind):
        return datetime(1950, 1, 1) + timedelta(microseconds=rng.randrange(4 * 10**15))
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    return "".join(rng.choice("aabbcX ,.1290-_é😀\n\\$%") for _ in range(rng.randrange(12)))
