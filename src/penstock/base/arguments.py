"""Checks of the arguments of public functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.base.location import callers_line
from penstock.base.masking import mask
from penstock.errors import ArgumentError

_NOT_A_LIST = (str, bytes, Mapping)

_SHOWN = 60
"""Characters of an invalid argument shown in the error."""


def check_type(
    value: object, kind: type | tuple[type, ...], where: str, expected: str, hint: str | None = None
) -> None:
    """Raise `ArgumentError` with the user's line unless `value` is of type `kind`.

    `where` names the function, `expected` describes the expected argument, and `hint` says what to pass instead.
    """
    if not isinstance(value, kind):
        raise ArgumentError.of(where, expected, _description(value), hint, callers_line())


def check_text(value: object, where: str, expected: str = "a text") -> None:
    """Check that an argument is a str."""
    check_type(value, str, where, expected)


def check_path(value: object, where: str) -> None:
    """Check that a path is a str."""
    check_type(value, str, where, "a path, which is a text", "give str(path)")


def check_table(value: object, where: str) -> None:
    """Check that the name of a table is a str."""
    check_text(value, where, "the name of a table, which is a text")


def check_data_frame(value: object, where: str) -> None:
    """Check that an argument is a DataFrame; the hint for a str assumes a SQL statement."""
    from pyspark.sql import DataFrame

    statement = "give env.sql(...) of the statement" if isinstance(value, str) else "give a DataFrame of Spark"
    check_type(value, DataFrame, where, "a DataFrame", statement)


def check_session(value: object, where: str) -> None:
    """Check that an argument is a Spark session; a Spark Connect session is refused later, with a hint of its own."""
    from pyspark.sql import SparkSession

    if type(value).__module__.startswith("pyspark.sql.connect."):
        return
    check_type(value, SparkSession, where, "a Spark session", "give a session, or leave it out for the active one")


def check_settings(value: object, where: str) -> None:
    """Check that an argument is a mapping of options or None."""
    check_type(value, (Mapping, type(None)), where, "a mapping of options to values", 'give {"option": value}')


def check_members(value: object, kind: type, where: str, expected: str, hint: str | None = None) -> None:
    """Check that an argument is a list of instances or subclasses of a type, see `check_type`."""
    members = value if isinstance(value, Iterable) and not isinstance(value, _NOT_A_LIST) else None
    if members is None:
        raise ArgumentError.of(where, f"a list of {expected}", _description(value), hint, callers_line())
    for member in members:
        if not (isinstance(member, type) and issubclass(member, kind)):
            check_type(member, kind, where, expected, hint)


def columns_of(value: object, where: str) -> tuple[str, ...]:
    """Return column names from an argument that is a name or a list of names, else raise `ArgumentError`."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Iterable) or isinstance(names, _NOT_A_LIST):
        raise ArgumentError.of(where, "a list of column names", _description(value), None, callers_line())
    columns = tuple(names)
    for column in columns:
        check_text(column, where, "names of columns")
    return columns


def _description(value: object) -> str:
    """Return the value, masked and shortened, with its type."""
    text = mask(repr(value))
    return f"{text if len(text) <= _SHOWN else f'{text[:_SHOWN]}...'}, of type {type(value).__name__}"
