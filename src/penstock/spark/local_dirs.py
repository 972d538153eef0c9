"""The folders that Spark keeps shuffled and spilled rows in (``spark.local.dir``)."""

from __future__ import annotations

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

    Uses ``DiskBlockManager.localDirs`` (Spark 4.0 to 4.3).
    """
    if not str(bridge.spark.sparkContext.master).startswith("local"):
        return []
    manager = bridge.find("org.apache.spark.SparkEnv").get().blockManager().diskBlockManager()
    folders = sorted({str(one.getParent()) for one in manager.localDirs()})
    return [LocalDir(folder, shutil.disk_usage(folder).free) for folder in folders if Path(folder).is_dir()]
