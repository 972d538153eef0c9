"""The type of options, and the parsing of their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from penstock.base.units import show_exact_bytes, show_exact_seconds
from penstock.errors import ConfigError

Value = bool | int | float | str | tuple[str, ...]

_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
# The leading space of " b bytes" and " ms milli millis" adds the empty unit: a number without a unit.
_SIZE_UNITS = {
    unit: power
    for power, units in enumerate((" b bytes", "k kb kib", "m mb mib", "g gb gib", "t tb tib"))
    for unit in units.split(" ")
}
_UNITS_BY_SECONDS = {
    0.001: " ms milli millis",
    1.0: "s sec second seconds",
    60.0: "min m minute minutes",
    3600.0: "h hour hours",
    86400.0: "d day days",
}
_DURATION_UNITS = {unit: seconds for seconds, units in _UNITS_BY_SECONDS.items() for unit in units.split(" ")}


def parse_size(value: object) -> int:
    """Return a memory size, such as ``"16 mb"``, ``"1g"`` or a plain number, in bytes. Units are powers of 1024.

    Raise `ValueError` if the text is not a size.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value)
    if text.strip() == "-1":  # disables a threshold, as in Spark's settings
        return -1
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError(text)
    return int(float(match[1]) * 1024 ** _SIZE_UNITS[match[2].lower()])


def parse_duration(value: object) -> float:
    """Return a duration, such as ``"30 s"`` or ``"3 min"``, in seconds.

    Text without a unit is in milliseconds, as is an integer. A float is in seconds, like the result of this function.
    Raise `ValueError` if the text is not a duration.
    """
    if isinstance(value, float):
        return value
    match = _NUMBER_AND_UNIT.fullmatch(str(value))
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
    """Return the type of lists whose items are restricted to `allowed`."""

    def parse(value: object) -> Value:
        items = _parse_list(value)
        if not {*items} <= {*allowed}:
            raise ValueError(str(value))
        return items

    return Kind(STRINGS.name, "one or more of " + ", ".join(allowed), parse)


@dataclass(frozen=True, slots=True)
class Option:
    """Declaration of an option, from which parsing, checks and docs are derived.

    If `default` is None, the option may be unset. `minimum` and `maximum` are inclusive bounds of numbers, `choices`
    the values of an enumeration (case is ignored), and `aliases` alternative keys.

    >>> Option("retry.wait", DURATION, "The pause before a retry.", default=5.0).parse("2 min", "job.py")
    120.0
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
        return show_exact_bytes(int(bound)) if self.kind is SIZE and bound >= 1024 else f"{bound:g}"  # not for -1, 0, 1

    def format(self, value: Value | None) -> str:
        """Return a value as text for users, such as ``16 MiB`` or ``true``; ``none`` if unset or an empty list."""
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
        """Return the typed value; `origin` says where the option was set, for messages.

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
            is_too_low = self.minimum is not None and parsed < self.minimum
            is_too_high = self.maximum is not None and parsed > self.maximum
            if is_too_low or is_too_high or parsed != parsed:  # noqa: PLR0124 - NaN
                raise ConfigError.bad_value(self.key, value, self.expected, origin)
        return parsed
