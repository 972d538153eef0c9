"""Other processes that are named in files of a checkpoint."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAMES_ITSELF = """
import json, sys, time
from dataclasses import asdict
from pathlib import Path
from penstock.commit.owner import Owner
Path(sys.argv[1]).write_text(json.dumps(asdict(Owner.current())))
print("named", flush=True)
time.sleep(60)
"""


@contextmanager
def named_in(file: Path) -> Iterator[subprocess.Popen]:
    """Start a process that writes its identity to a file and lives until the end of the block."""
    process = subprocess.Popen([sys.executable, "-c", _NAMES_ITSELF, str(file)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"named\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
