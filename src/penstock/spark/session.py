"""Spark sessions: the embedded one, and clones whose settings may be changed without the user noticing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import parse_size
from penstock.errors import SessionError
from penstock.spark.jobs import user_properties
from penstock.spark.settings import change_settings, put_settings_back, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from penstock.spark.handles import LocalProperties, Session
    from penstock.spark.jvm import Bridge

MINIMUM_JAVA = 17


def embedded_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Start, or get, a Spark session in this process.

    Parameters
    ----------
    master
        A master URL; if None, what spark-submit or the Spark defaults say, else all cores of this machine.
    conf
        Further Spark settings.

    Raises
    ------
    SessionError
        If there is no Java of version 17 or newer.
    """
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("penstock")
    if master:
        builder = builder.master(master)
    settings = {"spark.ui.showConsoleProgress": "false", "spark.api.mode": "classic", **(conf or {})}
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def check_java() -> str:
    """Return the path of a Java that Spark can use.

    Raises
    ------
    SessionError
        If there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise SessionError.no_java(f"JAVA_HOME is {home}, which has no bin/java" if home else "no java on the PATH")
    out = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    found = re.search(r'version "(\d+)', out)
    if found is None or int(found[1]) < MINIMUM_JAVA:
        raise SessionError.no_java(f"{java} is {out.splitlines()[0] if out else 'silent'}")
    return java


def broadcast_threshold(bridge: Bridge, *, at_run_time: bool = False) -> tuple[int, str]:
    """Return the session's own threshold for broadcasting a join side in bytes, -1 for never, and its setting."""
    conf = bridge.spark.conf
    setting, own = "spark.sql.autoBroadcastJoinThreshold", "spark.sql.adaptive.autoBroadcastJoinThreshold"
    if at_run_time and conf.get(own, None) is not None:
        setting = own
    return parse_size(conf.get(setting, "10485760") or "-1"), setting


def penstock_settings(bridge: Bridge) -> dict[str, str]:
    """Return the options in the Spark configuration; those of the session win over those of the context."""
    return read_settings(bridge.session, "spark.penstock.")


def session_settings(bridge: Bridge) -> dict[str, str]:
    """Return all settings that the session has now."""
    return dict(bridge.spark.conf.getAll)


class SessionPool:
    """Clones of the user's session, each used by one vertex at a time.

    A clone shares catalog, temporary views and cached data with the user's session, but not its settings.

    Uses ``org.apache.spark.sql.classic.SparkSession.cloneSession`` (Spark 4.0 to 4.3).

    Attributes
    ----------
    properties
        What the user's thread tells its Spark jobs, see `jobs.user_properties`; that of the thread that makes the pool
        if no other is given.
    """

    def __init__(self, bridge: Bridge, settings: Mapping[str, str], properties: LocalProperties | None = None) -> None:
        self._bridge = bridge
        self._settings = dict(settings)
        self.properties = user_properties(bridge) if properties is None else properties
        self._first: Session | None = None
        self._free: list[Session] = []
        self._lock = threading.Lock()

    def take(self, settings: Mapping[str, str] | None = None) -> Session:
        """Return a session for the caller alone, with these settings on top of those that all have."""
        with self._lock:
            session = self._free.pop() if self._free else None
        if session is None:
            session = self._template().clone()
        else:
            put_settings_back(session, self._template())
        if settings:
            change_settings(session, settings)
        return session

    def _template(self) -> Session:
        """Return a clone with the settings that all have, so that they are set once."""
        with self._lock:
            if self._first is None:
                self._first = self._bridge.session.clone()
                change_settings(self._first, self._settings)
            return self._first

    def give_back(self, session: Session) -> None:
        """Return a session that no plan refers to any more as the owner of its settings."""
        with self._lock:
            self._free.append(session)

    @contextmanager
    def use(self, settings: Mapping[str, str] | None = None) -> Iterator[Session]:
        """Lend a session for the length of a block."""
        session = self.take(settings)
        try:
            yield session
        finally:
            self.give_back(session)
