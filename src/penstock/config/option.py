"""The type of options, and the parsing of their values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.units import show_exact_bytes, show_exact_seconds
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

Value = bool | int | float | str | tuple[str, ...]

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_SIZE_UNITS = {
    unit: power
    for power, units in enumerate((" b bytes", "k kb kib", "m mb mib", "g gb gib", "t tb tib"))
    for unit in units.split(" ")
}
_SECONDS = {
    0.001: " ms milli millis",
    1.0: "s sec second seconds",
    60.0: "min m minute minutes",
    3600.0: "h hour hours",
    86400.0: "d day days",
}
_DURATION_UNITS = {unit: seconds for seconds, units in _SECONDS.items() for unit in units.split(" ")}


def parse_size(value: object) -> int:
    """Return a memory size in bytes; ``"16 mb"``, ``"1g"`` and plain numbers are sizes. Units are powers of 1024.

    Raise `ValueError` if the text is not a size.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value)
    if text.strip() == "-1":  # Spark's way to say "never"
        return -1
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError(text)
    return int(float(match[1]) * 1024 ** _SIZE_UNITS[match[2].lower()])


def parse_duration(value: object) -> float:
    """Return a duration in seconds; ``"30 s"``, ``"3 min"``. Text without a unit is in milliseconds.

    A float is in seconds, as it was parsed before. Raise `ValueError` if the text is not a duration.
    """
    if isinstance(value, float):
        return value
    match = _SIZE.fullmatch(str(value))
    if match is None or match[2].lower() not in _DURATION_UNITS:
        raise ValueError(str(value))
    return float(match[1]) * _DURATION_UNITS[match[2].lower()]


def _parse_bool(value: object) -> bool:
    text = str(value).strip().lower()
    if text not in {"true", "false"}:
        raise ValueError(text)
    return text == "true"


def _parse_int(value: object) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(str(value))
    return int(str(value).strip()) if not isinstance(value, float) else int(value)


def _parse_list(value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, (list, tuple)) else re.split(r"[;,]", str(value))
    return tuple(p for p in (str(part).strip() for part in parts) if p)


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of option values: its name in the docs, a description of valid values, and its parser."""

    name: str
    expected: str
    parse: Callable[[object], Value]


BOOL = Kind("boolean", "true or false", _parse_bool)
INT = Kind("integer", "a whole number", _parse_int)
FLOAT = Kind("number", "a number", lambda value: float(str(value)))
SIZE = Kind("memory size", 'a memory size such as "16 mb"', parse_size)
DURATION = Kind("duration", 'a duration such as "30 s"', parse_duration)
STRING = Kind("string", "text", str)
STRINGS = Kind("list", "a list, or text separated by commas", _parse_list)


def list_of(*allowed: str) -> Kind:
    """Return the type of lists whose elements are restricted to `allowed`."""

    def parse(value: object) -> Value:
        elements = _parse_list(value)
        if not {*elements} <= {*allowed}:
            raise ValueError(str(value))
        return elements

    return Kind(STRINGS.name, "one or more of " + ", ".join(allowed), parse)


@dataclass(frozen=True, slots=True)
class Option:
    """Declaration of an option, from which parsing, checks and docs are derived.

    `default` is None if being unset has a meaning of its own (see `doc`). `minimum` and `maximum` are inclusive bounds
    of numbers, `choices` the values of an enumeration, and `aliases` alternative keys.
    """

    key: str
    kind: Kind
    doc: str
    default: Value | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """A description of the valid values."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        bounds = []
        if self.minimum is not None:
            bounds.append(f"at least {self._format_bound(self.minimum)}")
        if self.maximum is not None:
            bounds.append(f"at most {self._format_bound(self.maximum)}")
        return self.kind.expected + (" of " + " and ".join(bounds) if bounds else "")

    def _format_bound(self, bound: float) -> str:
        return show_exact_bytes(int(bound)) if self.kind is SIZE and bound >= 1024 else f"{bound:g}"  # 1 KiB

    def format(self, value: Value | None) -> str:
        """Return a value as text for users, such as ``16 MiB``, ``30 s`` or ``true``; ``none`` if it is unset."""
        if value is None or value == ():
            return "none"
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, tuple):
            return ", ".join(value)
        if self.kind is SIZE and isinstance(value, int) and value > 0:
            return show_exact_bytes(value)
        return show_exact_seconds(value) if self.kind is DURATION and isinstance(value, float) else str(value)

    def parse(self, value: object, origin: str) -> Value:
        """Return the typed value of an option that was set in `origin`.

        Raise `ConfigError` if the value is not of the option's kind, or outside its bounds or choices.
        """
        try:
            parsed = self.kind.parse(value)
        except (ValueError, TypeError):
            raise ConfigError.bad_value(self.key, value, self.expected, origin) from None
        if self.choices:
            spellings = {choice.lower(): choice for choice in self.choices}
            if str(parsed).lower() not in spellings:
                raise ConfigError.bad_value(self.key, value, self.expected, origin)
            parsed = spellings[str(parsed).lower()]
        if isinstance(parsed, (int, float)) and not isinstance(parsed, bool):
            low = self.minimum is not None and parsed < self.minimum
            high = self.maximum is not None and parsed > self.maximum
            if low or high or parsed != parsed:  # noqa: PLR0124 - NaN
                raise ConfigError.bad_value(self.key, value, self.expected, origin)
        return parsed
