"""Checks of the arguments of public functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.base.location import current_user_line
from penstock.base.masking import mask
from penstock.errors import ArgumentError

_NON_LIST_TYPES = (str, bytes, Mapping)

_MAX_CHARACTERS = 60
"""The maximum length of an invalid argument in an error message; a longer one is truncated."""


def check_type(
    value: object, expected_type: type | tuple[type, ...], callee: str, expected: str, hint: str | None = None
) -> None:
    """Raise `ArgumentError`, with the line of the user's code, unless `value` is of type `expected_type`.

    In the message, `callee` names the function, `expected` is what the function needs, and `hint` is what to pass.
    """
    if not isinstance(value, expected_type):
        raise invalid_argument(value, callee, expected, hint)


def invalid_argument(value: object, callee: str, expected: str, hint: str | None = None) -> ArgumentError:
    """Return the error about an argument, with the line of the user's code; texts are as in `check_type`."""
    return ArgumentError.of(callee, expected, _description(value), hint, current_user_line())


def check_text(value: object, callee: str, expected: str = "a text") -> None:
    """Check that an argument is a str."""
    check_type(value, str, callee, expected)


def check_path(value: object, callee: str) -> None:
    """Check that a path is a str."""
    check_type(value, str, callee, "a path, which is a text", "pass str(path)")


def check_table(value: object, callee: str) -> None:
    """Check that the name of a table is a str."""
    check_text(value, callee, "the name of a table, which is a text")


def check_data_frame(value: object, callee: str) -> None:
    """Check that an argument is a DataFrame; the hint for a str is to pass it to `env.sql`."""
    from pyspark.sql import DataFrame

    hint = "pass env.sql(statement)" if isinstance(value, str) else "pass a DataFrame of Spark"
    check_type(value, DataFrame, callee, "a DataFrame", hint)


def check_session(value: object, callee: str) -> None:
    """Check that an argument is a Spark session; a Spark Connect session passes, as `Bridge` has an error for it."""
    from pyspark.sql import SparkSession

    if type(value).__module__.startswith("pyspark.sql.connect."):
        return
    check_type(value, SparkSession, callee, "a Spark session", "pass a session, or omit it to use the active session")


def check_settings(value: object, callee: str) -> None:
    """Check that an argument is a mapping of options or None."""
    check_type(value, (Mapping, type(None)), callee, "a mapping of options to values", 'pass {"option": value}')


def check_members(value: object, expected_type: type, callee: str, expected: str, hint: str | None = None) -> None:
    """Check that an argument is a list of instances or subclasses of a type; `expected` describes an element."""
    members = value if isinstance(value, Iterable) and not isinstance(value, _NON_LIST_TYPES) else None
    if members is None:
        raise invalid_argument(value, callee, f"a list of {expected}", hint)
    for member in members:
        if not (isinstance(member, type) and issubclass(member, expected_type)):
            check_type(member, expected_type, callee, expected, hint)


def columns_of(value: object, callee: str) -> tuple[str, ...]:
    """Return the column names in an argument; raise `ArgumentError` unless it is a name or a list of names."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Iterable) or isinstance(names, _NON_LIST_TYPES):
        raise invalid_argument(value, callee, "a list of column names")
    columns = tuple(names)
    for column in columns:
        check_text(column, callee, "column names, which are texts")
    return columns


def _description(value: object) -> str:
    """Return the repr of a value, shortened and with masked secrets, and the type of the value."""
    text = mask(repr(value))
    return f"{text if len(text) <= _MAX_CHARACTERS else f'{text[:_MAX_CHARACTERS]}...'}, of type {type(value).__name__}"
