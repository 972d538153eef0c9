"""What can be known to be wrong before Spark starts, which takes seconds."""

from __future__ import annotations

import os
import re
import socket
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.config import OPTIONS, Configuration
from penstock.errors import ConfigError, HistoryError, PenstockError, SessionError, SinkError, SourceError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|(spark|k8s)://.+"
)
_ANSWER = 2.0
"""Seconds that a master gets to take a connection."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def local(path: str) -> Path | None:
    """Return a path of this machine; None for one of another file system, which only Spark can look at."""
    parts = urlsplit(path)
    if parts.scheme not in {"", "file"}:
        return None
    return Path(parts.path if parts.scheme else path)


def check_settings(conf: Iterable[tuple[str, str]], file: str | None) -> None:
    """Refuse settings that Spark would pass over, and options that are unknown or have a value that cannot be.

    Raises
    ------
    ConfigError
        With the nearest known key.
    """
    settings = dict(conf)
    for key in settings:
        if not key.startswith("spark."):
            ours = key.removeprefix("penstock.")
            known = any(ours in {option.key, *option.aliases} for option in OPTIONS)
            hint = (
                f"an option of Penstock is given as spark.penstock.{ours}"
                if known
                else "keys begin with spark., those of Hadoop and Hive with spark.hadoop."
            )
            raise ConfigError(f"--conf {key} is no Spark setting", hint=hint)
    Configuration.load(spark_conf=settings, file=file, environ=os.environ)


def check_master(master: str) -> None:
    """Refuse a master that Spark does not know, or that nobody answers for.

    Raises
    ------
    SessionError
        If there is no such master.
    """
    if not _MASTER.fullmatch(master):
        raise SessionError(
            f"--master {master!r} is no master of Spark",
            hint="give local[4], local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT",
        )
    if master.startswith("spark://"):
        problems = []
        for address in master.removeprefix("spark://").split(","):
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host, int(port)), timeout=_ANSWER).close()
            except (OSError, ValueError) as error:
                problems.append(f"{address}: {error}")
            else:
                return
        raise SessionError(
            f"no Spark master answers at {master}",
            cause="; ".join(problems),
            hint="start one (sbin/start-master.sh), or give another --master",
        )


def check_table(name: str, path: str) -> None:
    """Refuse a table that has no file, or a name that no statement can use.

    Raises
    ------
    SourceError
        If it cannot be read.
    """
    if not _NAME.fullmatch(name):
        raise SourceError(
            f"--table {name}={path}: {name!r} is no name of a table", hint="use letters, digits and underscores"
        )
    found = local(path)
    if found is not None and not found.exists() and not glob(str(found)):  # noqa: PTH207 - the path may begin at the root
        raise SourceError(f"table {name}: there is nothing at {path}", hint="check the path")


def check_statement(statement: str) -> None:
    """Refuse a statement without a word.

    Raises
    ------
    PenstockError
        If it is empty.
    """
    if not statement.strip(" \t\n;"):
        raise PenstockError("the statement is empty", hint='for example "SELECT 1"')


def check_new_target(path: str) -> None:
    """Refuse a target that a sink would refuse.

    Raises
    ------
    SinkError
        If it exists, or cannot be made.
    """
    found = local(path)
    if found is not None:
        if found.exists():
            raise SinkError.exists(path)
        check_can_make(found, lambda cause: SinkError(f"{path} cannot be written", cause=cause))


def check_log_folder(path: str) -> None:
    """Refuse a folder that no event log can be written to.

    Raises
    ------
    HistoryError
        If it is a file, or cannot be made.
    """
    found = local(path)
    if found is not None:
        check_can_make(found, lambda cause: HistoryError.unwritable(path, cause))


def check_folder(path: str) -> None:
    """Refuse a folder that cannot be made.

    Raises
    ------
    SinkError
        If it is a file, or this user may not make it.
    """
    check_can_make(Path(path), lambda cause: SinkError(f"{path} cannot be written", cause=cause))


def check_checkpoint(path: str) -> None:
    """Refuse a folder that is no checkpoint.

    Raises
    ------
    StateError
        If a part of it is missing.
    """
    from penstock.state.checkpoint import PARTS

    found = local(path)
    if found is None:
        return
    if not found.is_dir():
        raise StateError.no_checkpoint(path, "such folder")
    for name in PARTS:
        if not (found / name).exists():
            raise StateError.no_checkpoint(path, f"{name!r} in it")


def check_recoverable(path: str) -> bool:
    """Refuse a path beside which no target can be; return whether there may be something to recover at it.

    Raises
    ------
    PenstockError
        If neither it nor its folder is there.
    """
    found = local(path)
    if found is None:
        return True
    found = found.resolve()
    if not found.parent.is_dir():
        raise PenstockError(
            f"there is no {found.parent}", hint="give a target, a folder with targets, or a commit journal"
        )
    folders = [found.parent, found] if found.is_dir() else [found.parent]
    return any(entry.name.startswith(".penstock-") for folder in folders for entry in folder.iterdir())


def is_journal(path: str) -> bool:
    """Whether a path has the name of a commit journal."""
    name = path.rpartition("/")[2]
    return name.startswith(".penstock-commit-") and name.endswith(".json")


def check_can_make(path: Path, error: Callable[[str], PenstockError]) -> None:
    """Refuse a path whose nearest folder that exists is no folder, or may not be written to."""
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise error(f"{existing} is a file")
    if not os.access(existing, os.W_OK):
        raise error(f"this user may not write to {existing}")


def check_secrets(file: str | None) -> dict[str, Mapping[str, str]]:
    """Return properties by target from a TOML file.

    Raises
    ------
    ConfigError
        If it is none, or has anything but tables.
    """
    import tomllib

    if file is None:
        return {}
    try:
        found = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not a TOML file", cause=str(error)) from error
    loose = [key for key, table in found.items() if not isinstance(table, dict)]
    if loose:
        raise ConfigError(
            f"{loose[0]!r} in {file} belongs to no target",
            hint='write a table for each, as ["jdbc:postgresql://host/db"]',
        )
    return {key: {name: str(value) for name, value in table.items()} for key, table in found.items()}
