"""Spark's hash of SQL values, in Python.

MurmurHash3, x86, 32 bits, in the variant of ``org.apache.spark.unsafe.hash.Murmur3_x86_32`` and with the rules of
``Murmur3Hash`` for types and nulls. So a key has the same partition as in Spark's exchanges and in keyed state on disk.
"""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from collections.abc import Callable, Sequence
from typing import Any

SEED = 42
"""The seed of Spark's exchanges."""
_MASK = 0xFFFFFFFF
_EPOCH = dt.date(1970, 1, 1).toordinal()
_MAX_LONG_PRECISION = 18
"""The maximum precision of a decimal that is hashed as a 64-bit integer; others are hashed as bytes."""


def hash_int(value: int, seed: int = SEED) -> int:
    """Return the signed 32-bit hash of a 32-bit integer."""
    return _finalize(_mix(seed, value), 4)


def hash_long(value: int, seed: int = SEED) -> int:
    """Return the signed 32-bit hash of a 64-bit integer."""
    return _finalize(_mix(_mix(seed, value), value >> 32), 8)


def hash_bytes(value: bytes, seed: int = SEED) -> int:
    """Return the signed 32-bit hash of bytes; each byte after the last full 4-byte word counts as a signed word."""
    word_bytes = len(value) & ~3
    h = seed
    for (word,) in struct.iter_unpack("<i", value[:word_bytes]):
        h = _mix(h, word)
    for (byte,) in struct.iter_unpack("<b", value[word_bytes:]):
        h = _mix(h, byte)
    return _finalize(h, len(value))


def hash_value(value: Any, type_name: str, seed: int = SEED) -> int:
    """Return the signed 32-bit hash of a value; `seed` if the value is None.

    `type_name` is Spark's name of the value's type, such as ``bigint`` or ``decimal(10,2)``. `seed` is the seed, or the
    hash of the values before this value. Raise `ValueError` if the type is not supported.
    """
    if value is None:
        return seed
    name = type_name.partition("(")[0]
    if name == "decimal":
        return _hash_decimal(value, type_name, seed)
    hash_and_convert = _FUNCTIONS.get(name)
    if hash_and_convert is None:
        raise ValueError(f"values of type {type_name} cannot be hashed")
    hash_function, convert = hash_and_convert
    return hash_function(convert(value), seed)


def hash_row(values: Sequence[Any], types: Sequence[str], seed: int = SEED) -> int:
    """Return the hash of several values; the hash of each is the seed of the next."""
    for value, type_name in zip(values, types, strict=True):
        seed = hash_value(value, type_name, seed)
    return seed


def _hash_decimal(value: decimal.Decimal, type_name: str, seed: int) -> int:
    precision, scale = (int(part) for part in type_name.rstrip(")").partition("(")[2].split(","))
    unscaled = int(value.scaleb(scale, decimal.Context(prec=2 * precision)))  # the default context rounds to 28 digits
    if precision <= _MAX_LONG_PRECISION:
        return hash_long(unscaled, seed)
    # As Java's BigInteger.toByteArray: the shortest big-endian two's complement.
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return hash_bytes(unscaled.to_bytes(bits // 8 + 1, "big", signed=True), seed)


def _microseconds(value: dt.datetime) -> int:
    utc = value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return (utc - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _rotate_left(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def _mix(h: int, word: int) -> int:
    k = _rotate_left((word & _MASK) * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return (_rotate_left((h & _MASK) ^ k, 13) * 5 + 0xE6546B64) & _MASK


def _finalize(h: int, length: int) -> int:
    h = (h & _MASK) ^ length
    h = (h ^ (h >> 16)) * 0x85EBCA6B & _MASK
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _bits_of_float(float_format: str, int_format: str) -> Callable[[float], int]:
    # Adding zero turns -0.0 into 0.0, because both have the same hash in Spark.
    return lambda value: struct.unpack(int_format, struct.pack(float_format, value + 0.0))[0]


_FUNCTIONS: dict[str, tuple[Callable[[Any, int], int], Callable[[Any], Any]]] = {  # by type: hash and conversion
    "boolean": (hash_int, int),
    "tinyint": (hash_int, int),
    "smallint": (hash_int, int),
    "int": (hash_int, int),
    "date": (hash_int, lambda value: value.toordinal() - _EPOCH),
    "bigint": (hash_long, int),
    "timestamp": (hash_long, _microseconds),
    "timestamp_ntz": (hash_long, _microseconds),
    "float": (hash_int, _bits_of_float("<f", "<i")),
    "double": (hash_long, _bits_of_float("<d", "<q")),
    "string": (hash_bytes, str.encode),
    "binary": (hash_bytes, bytes),
}
