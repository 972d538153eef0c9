"""Other processes, as files of a checkpoint name them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAMES_ITSELF = """
import json, sys, time
from dataclasses import asdict
from pathlib import Path
from penstock.commit.owner import Owner
Path(sys.argv[1]).write_text(json.dumps(asdict(Owner.me())))
print("named", flush=True)
time.sleep(60)
"""


@contextmanager
def named_in(file: Path) -> Iterator[subprocess.Popen]:
    """Let another process name itself in a file, and live while the block runs."""
    process = subprocess.Popen([sys.executable, "-c", _NAMES_ITSELF, str(file)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"named\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
