"""Rescales a checkpoint and dies by SIGKILL at the n-th change to its files.

Arguments: checkpoint, max parallelism, n, and the master (default: local[2]). With n = 0 it does not die, and prints the
number of changes. With -n it is stopped by SIGSTOP instead.
"""

import os
import signal
import sys

from penstock.spark.bridge.session import embedded_session
from penstock.spark.io.filesystem import HadoopPath
from penstock.state import rescale

location, number, deadly = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
changes = 0


def count_changes(name):
    original = getattr(HadoopPath, name)

    def change(self, *arguments, **options):
        global changes
        changes += 1
        if changes == abs(deadly):
            os.kill(os.getpid(), signal.SIGKILL if deadly > 0 else signal.SIGSTOP)
        return original(self, *arguments, **options)

    setattr(HadoopPath, name, change)


for method in ("make", "write", "copy_to", "move_to", "delete"):
    count_changes(method)
master = sys.argv[4] if len(sys.argv) > 4 else "local[2]"
spark = embedded_session(master, {"spark.ui.enabled": "false", "spark.log.level": "OFF"})
rescale(location, number, spark=spark)
print("changes", changes)
