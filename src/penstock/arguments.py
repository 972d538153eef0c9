"""Looks at what users give to functions, before anything is done with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.errors import ArgumentError
from penstock.location import callers_line
from penstock.masking import mask

_NOT_A_LIST = (str, bytes, Mapping)
"""What can be iterated over, and is never meant as a list of things."""

_SHOWN = 60
"""Characters of a wrong argument that are shown."""


def check_type(value: object, kind: type | tuple[type, ...], where: str, wanted: str, hint: str | None = None) -> None:
    """Refuse an argument that is not of a type.

    Parameters
    ----------
    value, kind
        The argument, and the types that it may have.
    where, wanted
        What needs it, and what it needs, in words.
    hint
        What to give instead.

    Raises
    ------
    ArgumentError
        If it is of another type; it names the user's line.
    """
    if not isinstance(value, kind):
        raise ArgumentError.of(where, wanted, _found(value), hint, callers_line())


def check_text(value: object, where: str, wanted: str = "a text") -> None:
    """Refuse what is no text."""
    check_type(value, str, where, wanted)


def check_path(value: object, where: str) -> None:
    """Refuse a place of files that is no text."""
    check_type(value, str, where, "a path, which is a text", "give str(path)")


def check_table(value: object, where: str) -> None:
    """Refuse the name of a table that is no text."""
    check_text(value, where, "the name of a table, which is a text")


def check_data_frame(value: object, where: str) -> None:
    """Refuse what is no DataFrame; a text is taken for a statement in the hint."""
    from pyspark.sql import DataFrame

    statement = "give env.sql(...) of the statement" if isinstance(value, str) else "give a DataFrame of Spark"
    check_type(value, DataFrame, where, "a DataFrame", statement)


def check_session(value: object, where: str) -> None:
    """Refuse what is no Spark session; one of Spark Connect passes, and whoever needs its JVM says what to do."""
    from pyspark.sql import SparkSession

    if type(value).__module__.startswith("pyspark.sql.connect."):
        return
    check_type(value, SparkSession, where, "a Spark session", "give a session, or leave it out for the active one")


def check_settings(value: object, where: str) -> None:
    """Refuse what is no mapping of options, nor None."""
    check_type(value, (Mapping, type(None)), where, "a mapping of options to values", 'give {"option": value}')


def check_members(value: object, kind: type, where: str, wanted: str, hint: str | None = None) -> None:
    """Refuse what is no list of objects or classes of a type.

    Parameters
    ----------
    value, kind, where, wanted, hint
        See `check_type`.
    """
    members = value if isinstance(value, Iterable) and not isinstance(value, _NOT_A_LIST) else None
    if members is None:
        raise ArgumentError.of(where, f"a list of {wanted}", _found(value), hint, callers_line())
    for one in members:
        if not (isinstance(one, type) and issubclass(one, kind)):
            check_type(one, kind, where, wanted, hint)


def columns_of(value: object, where: str) -> tuple[str, ...]:
    """Return columns that a user named: one text is one column, not its letters.

    Raises
    ------
    ArgumentError
        If it is neither a text nor a list of texts.
    """
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Iterable) or isinstance(names, _NOT_A_LIST):
        raise ArgumentError.of(where, "a list of column names", _found(value), None, callers_line())
    found = tuple(names)
    for one in found:
        check_text(one, where, "names of columns")
    return found


def _found(value: object) -> str:
    """Return what was given, in words; a text may hold a secret."""
    shown = mask(repr(value))
    return f"{shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}...'}, of type {type(value).__name__}"
