"""The blocks in which queries run as jobs: several may be open at a time, on several threads, and end in any order."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import ENABLED
from penstock.spark import query_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from penstock.spark.jvm import Bridge
    from penstock.spark.query_hook import Service

ENABLED_SETTING = f"spark.penstock.{ENABLED.key}"


@dataclass(slots=True, eq=False)
class _Block:
    session: SparkSession
    setting_before: str | None
    service_before: Service | None


_OPEN: list[_Block] = []
_LOCK = threading.Lock()


@contextmanager
def block(bridge: Bridge, enable: Callable[[], SparkSession]) -> Iterator[SparkSession]:
    """Enable a session while a block runs; when it ends, what it has found holds again, or what a later block has set.

    Parameters
    ----------
    bridge
        The session.
    enable
        Enables it.
    """
    session = bridge.spark
    with _LOCK:
        opened = _Block(session, session.conf.get(ENABLED_SETTING, None), query_hook.current(bridge))
        enable()
        _OPEN.append(opened)
    try:
        yield session
    finally:
        with _LOCK:
            _end(bridge, opened)


def _end(bridge: Bridge, ended: _Block) -> None:
    """Give what a block found to the block after it, or put it back where there is none."""
    place = _OPEN.index(ended)
    later, _ = _OPEN[place + 1 :], _OPEN.pop(place)
    if later:
        later[0].service_before = ended.service_before
    else:
        query_hook.use(bridge, ended.service_before)
    of_session = [one for one in later if query_hook.is_same_session(one.session, ended.session)]
    if of_session:
        of_session[0].setting_before = ended.setting_before
    elif ended.setting_before is None:
        ended.session.conf.unset(ENABLED_SETTING)
    else:
        ended.session.conf.set(ENABLED_SETTING, ended.setting_before)
