"""Pythons with other packages than this one, for clients and engines that are compared."""

import subprocess
import venv
from pathlib import Path

import pyspark

THIN = f"pyspark-client<={pyspark.__version__}"
"""PyPI's client of Spark Connect, which needs no Java."""


def python_with(folder: Path, *packages: str) -> Path:
    """Return a Python that has some packages of PyPI, in a folder of its own; they are installed the first time."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python
