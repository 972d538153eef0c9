"""The base of all errors, and general errors."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable


class PenstockError(Exception):
    """Base of all errors raised by Penstock.

    Parameters
    ----------
    message
        What happened, with the actual value.
    cause
        The cause, if known.
    hint
        What to do.
    line
        The line of the user's code that led to the error, such as ``job.py:12``, if known.
    """

    def __init__(
        self, message: str, *, cause: str | None = None, hint: str | None = None, line: str | None = None
    ) -> None:
        self.message = message
        self.cause = cause
        self.hint = hint
        self.line = line
        super().__init__(self._text())

    def _text(self) -> str:
        parts = {"cause": self.cause, "hint": self.hint, "line": self.line}
        lines = [f"  {f'{name}:':<6} {text}" for name, text in parts.items() if text]
        return "\n".join([self.message, *lines])

    def set_line(self, line: object) -> None:
        """Add the line of the user's code, unless the error has a line already or `line` is None."""
        if self.line is None and line is not None:
            self.line = str(line)
            self.args = (self._text(),)


class ArgumentError(PenstockError, TypeError):
    """A function got an invalid argument."""

    @classmethod
    def of(cls, where: str, expected: str, actual: str, hint: str | None, line: object) -> Self:
        """Build the error for an argument of a wrong type.

        Parameters
        ----------
        where
            The function, such as ``collect``.
        expected, actual
            Descriptions of the expected and of the actual argument.
        hint
            What to pass instead.
        line
            The user's line.
        """
        return cls(
            f"{where} needs {expected}",
            cause=f"it got {actual}",
            hint=hint,
            line=None if line is None else str(line),
        )


class ConfigError(PenstockError, ValueError):
    """An option is unknown or its value is not allowed."""

    @classmethod
    def unknown_key(cls, key: str, keys: Iterable[str], origin: str) -> Self:
        """Build the error for a key that no option declares."""
        near = get_close_matches(key, list(keys), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "`penstock options` lists all options"
        return cls(f"unknown option {key!r} in {origin}", hint=hint)

    @classmethod
    def bad_value(cls, key: str, value: object, expected: str, origin: str) -> Self:
        """Build the error for a value outside an option's type or bounds."""
        return cls(f"option {key!r} is {value!r} in {origin}", hint=f"give {expected}")


class SessionError(PenstockError):
    """The Spark session cannot be used, or could not be started."""

    @classmethod
    def connect(cls) -> Self:
        """Build the error for a Spark Connect session."""
        return cls(
            "Penstock needs a classic Spark session; this one is a Spark Connect client",
            cause="Penstock changes query plans inside the driver's JVM, which a Connect client cannot reach",
            hint="run the job in the driver: spark-submit, or SparkSession.builder.master(...) without "
            "spark.remote and with spark.api.mode=classic",
        )

    @classmethod
    def no_java(cls, cause: str) -> Self:
        """Build the error for a driver without a supported Java."""
        return cls(
            "Spark could not be started: no Java 17 or newer was found",
            cause=cause,
            hint="install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
            "macOS: brew install openjdk@17) or set JAVA_HOME",
        )

    @classmethod
    def not_pinned(cls) -> Self:
        """Build the error for a driver without pinned threads."""
        return cls(
            "Penstock needs pinned threads: a JVM thread for each Python thread",
            cause="PYSPARK_PIN_THREAD is false, so the session, settings and job groups of one thread reach others",
            hint="unset PYSPARK_PIN_THREAD, or set it to true, before Spark starts",
        )

    @classmethod
    def unsupported_version(cls, version: str) -> Self:
        """Build the error for a Spark release outside the supported range."""
        return cls(f"Spark {version} is not supported", hint="install pyspark 4.0, 4.1, 4.2 or 4.3")


class GraphError(PenstockError, ValueError):
    """A node, an edge or a change of a graph is invalid."""


class OptimizerError(PenstockError):
    """Strategies do not stop changing the graph."""

    @classmethod
    def unsettled(cls, names: list[str], rounds: int) -> Self:
        """Build the error for strategies that change the graph in every round."""
        return cls(
            f"after {rounds} rounds, {', '.join(names)} still changes the job's graph",
            cause="on_operators_finished returned True every time",
            hint="return False once the strategy has nothing left to change",
        )


class JobError(PenstockError):
    """A job failed; the message names the vertex, the operator and the user's line."""


class JobCancelledError(PenstockError):
    """A job was cancelled before it finished."""


def first_line(error: BaseException) -> str:
    """Return the first informative line of an error's message, for use as a clause."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("An error occurred while calling")), "")
