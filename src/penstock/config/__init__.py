"""Options: declared in `options`, with values from arguments, the Spark configuration, a file and the environment."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Self

from penstock.config.option import Option, Value, parse_duration, parse_size
from penstock.config.options import OPTIONS
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["OPTIONS", "Configuration", "Option", "parse_duration", "parse_size", "table_option"]

log = logging.getLogger("penstock.config")

SPARK_PREFIX = "spark.penstock."
ENVIRONMENT_PREFIX = "PENSTOCK_"
FILE_VARIABLE = "PENSTOCK_CONFIG"

_BY_KEY = {key: option for option in OPTIONS for key in (option.key, *option.aliases)}
_BY_VARIABLE = {
    ENVIRONMENT_PREFIX + key.replace(".", "_").replace("-", "_").upper(): option for key, option in _BY_KEY.items()
}


class Configuration:
    """Typed option values with their origins.

    Use `Configuration.load`; the constructor takes parsed values.
    """

    def __init__(self, values: Mapping[str, tuple[Value, str]] | None = None) -> None:
        self._values = dict(values or {})

    @classmethod
    def load(
        cls,
        arguments: Mapping[str, object] | None = None,
        *,
        spark_conf: Mapping[str, str] | None = None,
        file: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """Collect the options from all origins; the arguments of the program have the highest precedence.

        They are followed by the keys under ``spark.penstock.`` of the Spark configuration, by a TOML file, in which
        keys of nested tables are joined by dots (if None, the file in ``PENSTOCK_CONFIG``, if any), and by environment
        variables such as ``PENSTOCK_PARALLELISM_DEFAULT``.

        Raise `ConfigError` if a key is unknown, a value is not allowed, or the file is not readable.
        """
        environ = environ or {}
        file = file or environ.get(FILE_VARIABLE)
        values: dict[str, tuple[Value, str]] = {}
        for name, text in environ.items():
            if name.startswith(ENVIRONMENT_PREFIX) and name != FILE_VARIABLE:
                origin = f"environment variable {name}"
                option = _BY_VARIABLE.get(name)
                if option is None:
                    raise ConfigError.unknown_key(name, _BY_VARIABLE, "the environment")
                values[option.key] = (option.parse(text, origin), origin)
        if file is not None:
            _add(values, dict(_flatten(_read_toml(Path(file)))), f"file {file}")
        settings = (spark_conf or {}).items()
        options = {key.removeprefix(SPARK_PREFIX): text for key, text in settings if key.startswith(SPARK_PREFIX)}
        _add(values, options, "the Spark configuration")
        _add(values, dict(arguments or {}), "Environment(config=...)")
        return cls(values)

    def get(self, option: Option) -> Value | None:
        """Return the option's value, or its default."""
        return self._values.get(option.key, (option.default, "default"))[0]

    def integer(self, option: Option) -> int:
        """Return the value of a whole-number or size option that has a default."""
        value = self.get(option)
        if not isinstance(value, int):
            raise TypeError(option.key)
        return value

    def maybe_integer(self, option: Option) -> int | None:
        """Return the value of a whole-number or size option, None if it is unset."""
        return None if self.get(option) is None else self.integer(option)

    def seconds(self, option: Option) -> float:
        """Return the value of a duration option that has a default."""
        value = self.get(option)
        if not isinstance(value, float):
            raise TypeError(option.key)
        return value

    def maybe_seconds(self, option: Option) -> float | None:
        """Return the value of a duration option, None if it is unset."""
        return None if self.get(option) is None else self.seconds(option)

    def flag(self, option: Option) -> bool:
        """Return the value of a boolean option."""
        return self.get(option) is True

    def origin(self, option: Option) -> str:
        """Return where the value was set, or ``"default"``."""
        return self._values.get(option.key, (option.default, "default"))[1]

    def for_table(
        self, prefix: str, options: Mapping[str, str], properties: Mapping[str, str], table: str
    ) -> Configuration:
        """Return the options for a table or its writer, whose own options override the others.

        Only keys with the prefix are read. `options` are those of the writer, or the OPTIONS of the table; raise
        `ConfigError` if a key is unknown, or its value is not allowed. They override `properties`, the TBLPROPERTIES of
        the table, whose invalid values are logged and ignored, as other engines may use the same keys.
        """
        allowed = {key: option for key, option in _BY_KEY.items() if key.startswith(prefix)}
        overrides = dict(_usable({key: text for key, text in properties.items() if key in allowed}, table))
        for key, text in options.items():
            if key.startswith(prefix):
                if key not in allowed:
                    raise ConfigError.unknown_key(key, allowed, f"the options of {table}")
                overrides[key] = text
        values = dict(self._values)
        _add(values, overrides, f"the options of {table}")
        return Configuration(values)

    def items(self) -> Iterator[tuple[Option, Value | None, str]]:
        """Iterate over all options with value and origin, in the order of their declaration."""
        for option in OPTIONS:
            yield option, self.get(option), self.origin(option)


def table_option(option: Option, table_options: Mapping[str, str], table: str) -> Value | None:
    """Return an option of a table or reader, such as ``scan.parallelism``, None if it is unset.

    Raise `ConfigError` if its value is not allowed; the message names the value and the table.
    """
    for key in (option.key, *option.aliases):
        if key in table_options:
            return option.parse(table_options[key], f"the options of {table}")
    return None


def _usable(properties: Mapping[str, str], table: str) -> Iterator[tuple[str, str]]:
    """Yield the properties of a table whose values are allowed, and log the others."""
    for key, text in properties.items():
        try:
            _BY_KEY[key].parse(text, f"the properties of {table}")
        except ConfigError as error:
            log.warning("a property of %s is ignored: %s", table, error)
        else:
            yield key, text


def _add(values: dict[str, tuple[Value, str]], options: Mapping[str, object], origin: str) -> None:
    for key, value in options.items():
        option = _BY_KEY.get(key)
        if option is None:
            raise ConfigError.unknown_key(key, _BY_KEY, origin)
        values[option.key] = (option.parse(value, origin), origin)


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}", cause=error.strerror) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not a TOML file", cause=str(error)) from error


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
