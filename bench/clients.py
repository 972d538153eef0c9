"""Virtual environments for the clients and engines that benchmarks compare."""

import subprocess
import venv
from pathlib import Path

import pyspark

THIN_CLIENT = f"pyspark-client<={pyspark.__version__}"
"""Requirement of PyPI's Spark Connect client, which needs no Java."""


def python_with(folder: Path, *packages: str) -> Path:
    """Return the interpreter of a virtual environment with packages from PyPI; create it on first use."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python
