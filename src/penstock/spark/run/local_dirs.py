"""The folders for shuffled and spilled rows (``spark.local.dir``)."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.bridge.settings import read_settings

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge

_SETTING = "spark.local.dir"


@dataclass(frozen=True, slots=True)
class LocalDir:
    """A local folder of ``spark.local.dir``, and the free bytes of its disk."""

    path: str
    free_bytes: int


def local_dirs(bridge: Bridge) -> list[LocalDir]:
    """Return the existing folders; empty if tasks run on other machines.

    The settings have the same precedence as in Spark (``Utils.getConfiguredLocalDirs``, Spark 4.0 to 4.3).
    """
    if not str(bridge.spark.sparkContext.master).startswith("local"):
        return []
    variables = (os.environ.get(name) for name in ("SPARK_EXECUTOR_DIRS", "SPARK_LOCAL_DIRS"))
    paths = next(filter(None, variables), None) or read_settings(bridge.session, _SETTING).get(_SETTING)
    if paths is None:
        paths = str(bridge.find("java.lang.System").getProperty("java.io.tmpdir"))
    folders = [folder for part in paths.split(",") if (folder := part.strip()) and Path(folder).is_dir()]
    return [LocalDir(folder, shutil.disk_usage(folder).free) for folder in folders]
