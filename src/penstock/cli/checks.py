"""Checks of arguments before Spark starts, which takes seconds."""

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
_CONNECT_TIMEOUT = 2.0  # seconds
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def local(path: str) -> Path | None:
    """Return a path on this machine, or None for another file system, which only Spark can access."""
    parts = urlsplit(path)
    if parts.scheme not in {"", "file"}:
        return None
    return Path(parts.path if parts.scheme else path)


def check_settings(conf: Iterable[tuple[str, str]], file: str | None) -> None:
    """Raise `ConfigError` for settings that Spark would ignore, and for unknown options or invalid values."""
    settings = dict(conf)
    for key in settings:
        if not key.startswith("spark."):
            ours = key.removeprefix("penstock.")
            is_option = any(ours in {option.key, *option.aliases} for option in OPTIONS)
            hint = (
                f"set an option of Penstock as spark.penstock.{ours}"
                if is_option
                else "keys begin with spark., those of Hadoop and Hive with spark.hadoop."
            )
            raise ConfigError(f"--conf {key} is not a Spark setting", hint=hint)
    Configuration.load(spark_conf=settings, file=file, environ=os.environ)


def check_master(master: str) -> None:
    """Raise `SessionError` for a master that is not valid for Spark, or that does not accept connections."""
    if not _MASTER.fullmatch(master):
        raise SessionError(
            f"--master {master!r} is not a valid Spark master",
            hint="use local[4], local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT",
        )
    if master.startswith("spark://"):
        problems = []
        for address in master.removeprefix("spark://").split(","):
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT).close()
            except (OSError, ValueError) as error:
                problems.append(f"{address}: {error}")
            else:
                return
        raise SessionError(
            f"no Spark master answers at {master}",
            cause="; ".join(problems),
            hint="start a master (sbin/start-master.sh), or pass another --master",
        )


def check_table(name: str, path: str) -> None:
    """Raise `SourceError` for a table whose path does not exist, or a name that statements cannot use."""
    if not _NAME.fullmatch(name):
        raise SourceError(
            f"--table {name}={path}: {name!r} is not a valid table name", hint="use letters, digits and underscores"
        )
    local_path = local(path)
    if local_path is not None and not local_path.exists() and not glob(str(local_path)):  # noqa: PTH207 - the path may be absolute
        raise SourceError(f"table {name}: {path} does not exist", hint="check the path")


def check_new_target(path: str) -> None:
    """Raise `SinkError` for a target that exists, or that cannot be created."""
    local_path = local(path)
    if local_path is not None:
        if local_path.exists():
            raise SinkError.exists(path)
        check_can_create(local_path, lambda cause: SinkError(f"{path} cannot be written", cause=cause))


def check_log_folder(path: str) -> None:
    """Raise `HistoryError` for a folder of event logs that is a file, or that cannot be created."""
    local_path = local(path)
    if local_path is not None:
        check_can_create(local_path, lambda cause: HistoryError.unwritable(path, cause))


def check_checkpoint(path: str) -> None:
    """Raise `StateError` for a folder that is not a checkpoint, as a part of it is missing."""
    from penstock.state.checkpoint import PARTS

    local_path = local(path)
    if local_path is None:
        return
    if not local_path.is_dir():
        raise StateError.no_checkpoint(path, "such folder")
    for name in PARTS:
        if not (local_path / name).exists():
            raise StateError.no_checkpoint(path, f"{name!r} in it")


def check_recoverable(path: str) -> bool:
    """Return whether there may be something to recover at a path; raise `PenstockError` if it has no parent folder."""
    local_path = local(path)
    if local_path is None:
        return True
    local_path = local_path.resolve()
    if not local_path.parent.is_dir():
        raise PenstockError(
            f"the folder {local_path.parent} does not exist",
            hint="pass a target, a folder with targets, or a commit journal",
        )
    folders = [local_path.parent, local_path] if local_path.is_dir() else [local_path.parent]
    return any(entry.name.startswith(".penstock-") for folder in folders for entry in folder.iterdir())


def check_can_create(path: Path, error: Callable[[str], PenstockError]) -> None:
    """Raise an error unless the nearest existing parent of a path is a folder that this user may write to."""
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise error(f"{existing} is a file")
    if not os.access(existing, os.W_OK):
        raise error(f"this user may not write to {existing}")


def check_secrets(file: str | None) -> dict[str, Mapping[str, str]]:
    """Read the properties of each target from a TOML file; without a file there are none.

    Raise `ConfigError` if the file is not TOML, or has entries outside of tables.
    """
    import tomllib

    if file is None:
        return {}
    try:
        tables = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not a TOML file", cause=str(error)) from error
    loose = [key for key, table in tables.items() if not isinstance(table, dict)]
    if loose:
        raise ConfigError(
            f"{loose[0]!r} in {file} belongs to no target",
            hint='write a TOML table for each target, such as ["jdbc:postgresql://host/db"]',
        )
    return {key: {name: str(value) for name, value in table.items()} for key, table in tables.items()}
