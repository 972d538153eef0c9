"""Spark's hash of values, in Python.

MurmurHash3, x86, 32 bits, in the variant of ``org.apache.spark.unsafe.hash.Murmur3_x86_32`` and with the rules of
``Murmur3Hash`` for types and nulls, so that it agrees with Spark's exchanges and with keyed state on disk.
"""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEED = 42
"""The seed of Spark's exchanges."""
_MASK = 0xFFFFFFFF
_EPOCH = dt.date(1970, 1, 1).toordinal()
_LONG_DECIMAL_DIGITS = 18
"""Decimals of more digits are hashed as bytes."""


def hash_int(value: int, seed: int = SEED) -> int:
    """Return the hash of four bytes, signed."""
    return _finished(_mixed(seed, value), 4)


def hash_long(value: int, seed: int = SEED) -> int:
    """Return the hash of eight bytes, signed."""
    return _finished(_mixed(_mixed(seed, value), value >> 32), 8)


def hash_bytes(value: bytes, seed: int = SEED) -> int:
    """Return the hash of bytes, signed; each byte after the last whole word is hashed as a signed word."""
    whole = len(value) & ~3
    h = seed
    for (word,) in struct.iter_unpack("<i", value[:whole]):
        h = _mixed(h, word)
    for (byte,) in struct.iter_unpack("<b", value[whole:]):
        h = _mixed(h, byte)
    return _finished(h, len(value))


def hash_value(value: Any, type_name: str, seed: int = SEED) -> int:
    """Return the hash of a value.

    Raise `ValueError` if the type is not supported.

    `type_name` is the name of its type in Spark: ``bigint``, ``decimal(10,2)``, ``string`` ... `seed` is the seed, or
    the hash of the values before it.
    """
    if value is None:
        return seed
    name = type_name.partition("(")[0]
    if name == "decimal":
        return _hash_decimal(value, type_name, seed)
    hashed = _BY_TYPE.get(name)
    if hashed is None:
        message = f"values of type {type_name} cannot be hashed"
        raise ValueError(message)
    function, convert = hashed
    return function(convert(value), seed)


def hash_row(values: Sequence[Any], types: Sequence[str], seed: int = SEED) -> int:
    """Return the hash of several values; the hash of each is the seed of the next."""
    for value, type_name in zip(values, types, strict=True):
        seed = hash_value(value, type_name, seed)
    return seed


def _hash_decimal(value: decimal.Decimal, type_name: str, seed: int) -> int:
    precision, scale = (int(part) for part in type_name.rstrip(")").partition("(")[2].split(","))
    unscaled = int(value.scaleb(scale, decimal.Context(prec=2 * precision)))
    if precision <= _LONG_DECIMAL_DIGITS:
        return hash_long(unscaled, seed)
    # As Java's BigInteger.toByteArray: the shortest big-endian two's complement.
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return hash_bytes(unscaled.to_bytes(bits // 8 + 1, "big", signed=True), seed)


def _microseconds(value: dt.datetime) -> int:
    utc = value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return (utc - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def _mixed(h: int, word: int) -> int:
    k = _rotated((word & _MASK) * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return (_rotated((h & _MASK) ^ k, 13) * 5 + 0xE6546B64) & _MASK


def _finished(h: int, length: int) -> int:
    h = (h & _MASK) ^ length
    h = (h ^ (h >> 16)) * 0x85EBCA6B & _MASK
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _reinterpret(float_format: str, int_format: str) -> Callable[[float], int]:
    # Adding zero turns -0.0 into 0.0.
    return lambda value: struct.unpack(int_format, struct.pack(float_format, value + 0.0))[0]


_BY_TYPE: dict[str, tuple[Callable[[Any, int], int], Callable[[Any], Any]]] = {
    "boolean": (hash_int, int),
    "tinyint": (hash_int, int),
    "smallint": (hash_int, int),
    "int": (hash_int, int),
    "date": (hash_int, lambda value: value.toordinal() - _EPOCH),
    "bigint": (hash_long, int),
    "timestamp": (hash_long, _microseconds),
    "timestamp_ntz": (hash_long, _microseconds),
    "float": (hash_int, _reinterpret("<f", "<i")),
    "double": (hash_long, _reinterpret("<d", "<q")),
    "string": (hash_bytes, str.encode),
    "binary": (hash_bytes, bytes),
}
