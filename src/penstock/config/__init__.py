"""Option values from arguments, the Spark configuration, a file and the environment; `options` declares the options."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from penstock.config.option import Option, Value, parse_duration, parse_size
from penstock.config.options import OPTIONS
from penstock.errors import ConfigError, ConfigFileError

__all__ = ["OPTIONS", "Configuration", "Option", "parse_duration", "parse_size", "table_option"]

log = logging.getLogger("penstock.config")

SPARK_PREFIX = "spark.penstock."
ENVIRONMENT_PREFIX = "PENSTOCK_"
FILE_VARIABLE = "PENSTOCK_CONFIG"  # the environment variable with the path of the file

_OPTIONS_BY_KEY = {key: option for option in OPTIONS for key in (option.key, *option.aliases)}
_OPTIONS_BY_VARIABLE = {
    ENVIRONMENT_PREFIX + key.replace(".", "_").replace("-", "_").upper(): option
    for key, option in _OPTIONS_BY_KEY.items()
}


class Configuration:
    """Typed option values with their origins.

    Use `Configuration.load`. The constructor takes the parsed value and the origin of each option, by key.
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
        """Collect the options from all origins; `arguments`, which the program passes, have the highest precedence.

        The next are keys of `spark_conf` that begin with ``spark.penstock.``, then the TOML `file` (if None: the file
        that ``PENSTOCK_CONFIG`` in `environ` names), where dots join the keys of nested tables, then the environment
        variables in `environ`, such as ``PENSTOCK_PARALLELISM_DEFAULT``. If `environ` is None, no variables are read.

        Raise `ConfigError` if a key is unknown, a value is not allowed, or the file is not readable.

        >>> config = Configuration.load({"parallelism.default": 8})
        >>> [(option.key, value) for option, value, origin in config.items() if origin != "default"]
        [('parallelism.default', 8)]
        """
        environ = environ or {}
        file = file or environ.get(FILE_VARIABLE)
        values: dict[str, tuple[Value, str]] = {}
        for name, text in environ.items():
            if name.startswith(ENVIRONMENT_PREFIX) and name != FILE_VARIABLE:
                origin = f"environment variable {name}"
                option = _OPTIONS_BY_VARIABLE.get(name)
                if option is None:
                    raise ConfigError.unknown_key(name, _OPTIONS_BY_VARIABLE, "the environment")
                values[option.key] = (option.parse(text, origin), origin)
        if file is not None:
            _parse_into(values, dict(_flatten(_read_toml(Path(file)))), f"file {file}")
        settings = (spark_conf or {}).items()
        spark_options = {key.removeprefix(SPARK_PREFIX): text for key, text in settings if key.startswith(SPARK_PREFIX)}
        _parse_into(values, spark_options, "the Spark configuration")
        _parse_into(values, dict(arguments or {}), "Environment(config=...)")
        return cls(values)

    def get(self, option: Option) -> Value | None:
        """Return the option's value, or its default; None if it has neither."""
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
        """Return whether a boolean option is true; False if it is unset."""
        return self.get(option) is True

    def origin(self, option: Option) -> str:
        """Return where the value was set, such as ``"file a.toml"``; ``"default"`` if it was not set."""
        return self._values.get(option.key, (option.default, "default"))[1]

    def for_table(
        self, prefix: str, options: Mapping[str, str], properties: Mapping[str, str], table: str
    ) -> Configuration:
        """Return a copy of this configuration in which `properties` override values, and `options` override both.

        Only keys with the prefix are read. `options` are those of the writer, or the OPTIONS of the table. If they have
        unknown keys or invalid values, raise `ConfigError`. `properties` are the TBLPROPERTIES of the table. Unknown
        keys and invalid values (logged) in the properties are ignored: other engines may use the same keys.
        """
        allowed = {key: option for key, option in _OPTIONS_BY_KEY.items() if key.startswith(prefix)}
        overrides = dict(_valid_properties({key: text for key, text in properties.items() if key in allowed}, table))
        for key, text in options.items():
            if key.startswith(prefix):
                if key not in allowed:
                    raise ConfigError.unknown_key(key, allowed, f"the options of {table}")
                overrides[key] = text
        values = dict(self._values)
        _parse_into(values, overrides, f"the options of {table}")
        return Configuration(values)

    def items(self) -> Iterator[tuple[Option, Value | None, str]]:
        """Yield each option with its value (None if unset) and its origin, in the order of their declaration."""
        for option in OPTIONS:
            yield option, self.get(option), self.origin(option)


def table_option(option: Option, table_options: Mapping[str, str], table: str) -> Value | None:
    """Return the value of an option, such as ``scan.parallelism``, in the options of a table or reader; None if unset.

    Raise `ConfigError` if its value is not allowed; the message names the value and the table.
    """
    for key in (option.key, *option.aliases):
        if key in table_options:
            return option.parse(table_options[key], f"the options of {table}")
    return None


def _valid_properties(properties: Mapping[str, str], table: str) -> Iterator[tuple[str, str]]:
    """Yield the properties of a table whose values are allowed, and log the others."""
    for key, text in properties.items():
        try:
            _OPTIONS_BY_KEY[key].parse(text, f"the properties of {table}")
        except ConfigError as error:
            log.warning("a property of %s is ignored: %s", table, error)
        else:
            yield key, text


def _parse_into(values: dict[str, tuple[Value, str]], options: Mapping[str, object], origin: str) -> None:
    for key, value in options.items():
        option = _OPTIONS_BY_KEY.get(key)
        if option is None:
            raise ConfigError.unknown_key(key, _OPTIONS_BY_KEY, origin)
        values[option.key] = (option.parse(value, origin), origin)


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigFileError(f"cannot read the configuration file {path}", cause=error.strerror) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigFileError(f"{path} is not a TOML file", cause=str(error)) from error


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
