"""Blocks in which a session is enabled: several may overlap on several threads, and end in any order."""

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
    """Enable a session while a block runs. Afterwards restore the previous setting, or keep that of a later block."""
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
    """Pass the previous settings of a block to the next open block, or restore them if there is none."""
    index = _OPEN.index(ended)
    later, _ = _OPEN[index + 1 :], _OPEN.pop(index)
    if later:
        later[0].service_before = ended.service_before
    else:
        query_hook.use(bridge, ended.service_before)
    same_session = [block for block in later if query_hook.is_same_session(block.session, ended.session)]
    if same_session:
        same_session[0].setting_before = ended.setting_before
    elif ended.setting_before is None:
        ended.session.conf.unset(ENABLED_SETTING)
    else:
        ended.session.conf.set(ENABLED_SETTING, ended.setting_before)
