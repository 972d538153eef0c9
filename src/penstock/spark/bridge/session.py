"""Spark sessions: the embedded session, and clones with other settings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from penstock.config import parse_size
from penstock.errors import SessionError
from penstock.spark.bridge.settings import change_settings, read_settings, reset_settings
from penstock.spark.run.jobs import user_properties

if TYPE_CHECKING:
    from penstock.spark.bridge.handles import LocalProperties, Session
    from penstock.spark.bridge.jvm import Bridge

MINIMUM_JAVA = 17


def embedded_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Start a Spark session in this process, or return the existing session.

    `master` is a master URL; if None, that of spark-submit or the Spark defaults, else all cores of this machine.
    `conf` has additional Spark settings. Raises `SessionError` if there is no session and no Java 17 or newer.
    """
    if SparkSession.getActiveSession() is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("penstock")
    if master:
        builder = builder.master(master)
    settings = {"spark.ui.showConsoleProgress": "false", "spark.api.mode": "classic", **(conf or {})}
    for key, value in settings.items():
        builder = builder.config(key, value)
    with java_checked():
        return builder.getOrCreate()


def check_java() -> str:
    """Return the path of a Java that Spark can use; raise `SessionError` if there is none, or it is too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise SessionError.no_java(f"JAVA_HOME is {home}, which has no bin/java" if home else "no java on the PATH")
    try:
        out = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    except OSError as error:
        raise SessionError.no_java(f"{java} cannot be run: {error.strerror}") from error
    match = re.search(r'version "(\d+)', out)
    if match is None or int(match[1]) < MINIMUM_JAVA:
        lines = [line for line in out.splitlines() if not line.startswith("Picked up ")]  # names options of Java
        raise SessionError.no_java(f"{java} is {lines[0] if lines else 'of an unknown version'}")
    return java


@contextmanager
def java_checked() -> Iterator[None]:
    """If a JVM that is started in the block fails, raise the error of `check_java`, if it raises any, not PySpark's.

    PySpark may find a Java that `check_java` does not, such as that of ``spark-env.sh``, so it tries first.
    """
    context: Any = import_module("pyspark.core.context")
    original_launch = context.launch_gateway

    @wraps(original_launch)
    def launch_gateway(*arguments: Any, **options: Any) -> Any:
        try:
            return original_launch(*arguments, **options)
        except Exception:
            if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started the JVM
                check_java()
            raise

    context.launch_gateway = launch_gateway
    try:
        yield
    finally:
        context.launch_gateway = original_launch


def broadcast_threshold(bridge: Bridge, *, at_run_time: bool = False) -> tuple[int, str]:
    """Return the session's broadcast threshold (bytes, -1 if off), for planning or `at_run_time`, and its setting."""
    conf = bridge.spark.conf
    setting, adaptive = "spark.sql.autoBroadcastJoinThreshold", "spark.sql.adaptive.autoBroadcastJoinThreshold"
    if at_run_time and conf.get(adaptive, None) is not None:  # Spark compares it with measured sizes
        setting = adaptive
    return parse_size(conf.get(setting, "10485760") or "-1"), setting


def penstock_settings(bridge: Bridge) -> dict[str, str]:
    """Return the Penstock options of the Spark configuration; the session overrides the `SparkContext`."""
    return read_settings(bridge.session, "spark.penstock.")


def session_settings(bridge: Bridge) -> dict[str, str]:
    """Return the settings that the session or the application sets; settings at their default are absent."""
    return dict(bridge.spark.conf.getAll)


class SessionPool:
    """Clones of the user's session, each used by a single vertex at a time.

    A clone shares catalog, temporary views and cached data with the user's session, but not its settings. `properties`
    are the local properties of Spark jobs, by default those of the thread that creates the pool.
    """

    def __init__(self, bridge: Bridge, settings: Mapping[str, str], properties: LocalProperties | None = None) -> None:
        self._bridge = bridge
        self._settings = dict(settings)
        self.properties = user_properties(bridge) if properties is None else properties
        self._template_session: Session | None = None
        self._free: list[Session] = []
        self._lock = threading.Lock()

    def take(self, settings: Mapping[str, str] | None = None) -> Session:
        """Return a session for exclusive use, with the pool's settings and additional settings."""
        with self._lock:
            session = self._free.pop() if self._free else None
        if session is None:
            session = self._template().clone()
        else:
            reset_settings(session, self._template())
        if settings:
            change_settings(session, settings)
        return session

    def _template(self) -> Session:
        """Return a clone with the pool's settings, so that they are set only once."""
        with self._lock:
            if self._template_session is None:
                self._template_session = self._bridge.session.clone()
                change_settings(self._template_session, self._settings)
            return self._template_session

    def give_back(self, session: Session) -> None:
        """Return a session to the pool; no plan may read the settings of this session any more."""
        with self._lock:
            self._free.append(session)

    @contextmanager
    def use(self, settings: Mapping[str, str] | None = None) -> Iterator[Session]:
        """Provide a session within a block."""
        session = self.take(settings)
        try:
            yield session
        finally:
            self.give_back(session)
