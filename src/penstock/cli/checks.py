"""Checks of arguments before Spark starts, as a start takes seconds; only paths on this machine are checked."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from glob import glob
from pathlib import Path
from urllib.parse import urlsplit

from penstock.base.local_files import obstacle_to_create
from penstock.config import OPTIONS, Configuration
from penstock.errors import ConfigError, HistoryError, PenstockError, SessionError, SinkError, SourceError, StateError

_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|(spark|k8s)://.+"
)
_CONNECT_TIMEOUT = 2.0  # seconds
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def as_local_path(path: str) -> Path | None:
    """Return a path on this machine; None for a path on another file system, which only Spark can access."""
    parts = urlsplit(path)
    if parts.scheme not in {"", "file"}:
        return None
    return Path(parts.path if parts.scheme else path)


def check_settings(conf: Iterable[tuple[str, str]], file: str | None) -> None:
    """Raise `ConfigError` if Spark would ignore a setting, or an option (of `conf`, `file`, environment) is invalid."""
    settings = dict(conf)
    for key in settings:
        if not key.startswith("spark."):
            option_key = key.removeprefix("penstock.")
            hint = "keys begin with spark., or with spark.hadoop. for Hadoop and Hive"
            if any(option_key in {option.key, *option.aliases} for option in OPTIONS):
                hint = f"set an option of Penstock as spark.penstock.{option_key}"
            raise ConfigError(f"--conf {key} is not a Spark setting", hint=hint)
    Configuration.load(spark_conf=settings, file=file, environ=os.environ)


def check_master(master: str) -> None:
    """Raise `SessionError` if a master is not valid for Spark, or none of its ``spark://`` addresses is reachable."""
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
    """Raise `SourceError` if the path of a table does not exist, or its name is not valid in a statement."""
    if not _TABLE_NAME.fullmatch(name):
        raise SourceError(
            f"--table {name}={path}: {name!r} is not a valid table name", hint="use letters, digits and underscores"
        )
    local_path = as_local_path(path)
    if local_path is not None and not local_path.exists() and not glob(str(local_path)):  # noqa: PTH207 - the path may be absolute
        raise SourceError(f"table {name}: {path} does not exist", hint="check the path")


def check_new_target(path: str) -> None:
    """Raise `SinkError` if a target exists, or cannot be created."""
    local_path = as_local_path(path)
    if local_path is not None:
        if local_path.exists():
            raise SinkError.already_exists(path)
        check_can_create(local_path, lambda cause: SinkError(f"{path} cannot be written", cause=cause))


def check_log_folder(path: str) -> None:
    """Raise `HistoryError` if a folder of event logs is a file, or cannot be created."""
    local_path = as_local_path(path)
    if local_path is not None:
        check_can_create(local_path, lambda cause: HistoryError.unwritable(path, cause))


def check_checkpoint(path: str) -> None:
    """Raise `StateError` if a folder does not exist, or lacks an entry that every checkpoint of Spark has."""
    from penstock.state.checkpoint import REQUIRED_ENTRIES

    local_path = as_local_path(path)
    if local_path is None:
        return
    if not local_path.is_dir():
        raise StateError.no_checkpoint(path, "such folder")
    for name in REQUIRED_ENTRIES:
        if not (local_path / name).exists():
            raise StateError.no_checkpoint(path, f"{name!r} in it")


def may_have_commits(path: str) -> bool:
    """Return whether a path may have commits to recover; raise `PenstockError` if its parent folder does not exist."""
    local_path = as_local_path(path)
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


def check_can_create(path: Path, error_of: Callable[[str], PenstockError]) -> None:
    """Raise `error_of(cause)` unless a path, or its nearest existing parent, is a folder that the user may write to."""
    cause = obstacle_to_create(path)
    if cause is not None:
        raise error_of(cause)


def read_properties(file: str | None) -> dict[str, Mapping[str, str]]:
    """Read the properties of each target from a TOML file; return an empty dictionary if `file` is None.

    Raise `ConfigError` if the file is not TOML, or has a key outside of a TOML table.
    """
    import tomllib

    if file is None:
        return {}
    try:
        tables = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not a TOML file", cause=str(error)) from error
    keys_outside_tables = [key for key, table in tables.items() if not isinstance(table, dict)]
    if keys_outside_tables:
        raise ConfigError(
            f"{keys_outside_tables[0]!r} in {file} belongs to no target",
            hint='write a TOML table for each target, such as ["jdbc:postgresql://host/db"]',
        )
    return {key: {name: str(value) for name, value in table.items()} for key, table in tables.items()}
