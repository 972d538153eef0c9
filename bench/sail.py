"""Sail, an engine behind Spark Connect (PyPI's pysail), in its own process and virtual environment."""

import json
import subprocess
from pathlib import Path

from clients import THIN_CLIENT, python_with

HERE = Path(__file__).parent
VERSION = "0.7.2"


class Sail:
    """A Sail server with a thread for each core and the parquet files of a folder as tables."""

    def __init__(self, data: Path, cores: int) -> None:
        python = python_with(HERE.parent / ".venv" / "sail", f"pysail=={VERSION}", THIN_CLIENT)
        self._process = subprocess.Popen(
            [python, HERE / "sail_stream.py", data.resolve(), str(cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def rows(self, text: str) -> list[str]:
        """Return the rows of a query as `rows.comparable` does; exit if it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(text), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline() or '{"error": "Sail has ended"}')
        if "error" in answer:
            raise SystemExit(f"Sail: {answer['error']}")
        return answer["rows"]
