"""The folders that Spark keeps shuffled and spilled rows in (``spark.local.dir``)."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge


@dataclass(frozen=True, slots=True)
class LocalDir:
    """A folder of ``spark.local.dir`` on this machine.

    Parameters
    ----------
    path
        The folder.
    free
        The bytes that its disk has left.
    """

    path: str
    free: int


def local_dirs(bridge: Bridge) -> list[LocalDir]:
    """Return the folders; nothing where the tasks run on other machines, whose disks nobody can ask here.

    Spark looks for them in the same order (``Utils.getConfiguredLocalDirs``, Spark 4.0 to 4.3).
    """
    context = bridge.spark.sparkContext
    if not str(context.master).startswith("local"):
        return []
    variables = (os.environ.get(name) for name in ("SPARK_EXECUTOR_DIRS", "SPARK_LOCAL_DIRS"))
    given = next(filter(None, variables), None) or context.getConf().get("spark.local.dir")
    if given is None:
        given = str(bridge.find("java.lang.System").getProperty("java.io.tmpdir"))
    folders = [folder for part in given.split(",") if (folder := part.strip()) and Path(folder).is_dir()]
    return [LocalDir(folder, shutil.disk_usage(folder).free) for folder in folders]
