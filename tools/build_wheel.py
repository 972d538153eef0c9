"""Build the wheel, with Java classes compiled for the installed PySpark: build_wheel.py FOLDER."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark

ROOT = Path(__file__).parent.parent


def build(folder: Path) -> Path:
    """Build the wheel into a folder and return its path."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    spark = {"SPARK_HOME": str(Path(pyspark.__file__).parent)}
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, env=os.environ | spark)
    wheel = max(folder.glob("penstock-*.whl"), key=lambda file: file.stat().st_mtime)
    if not any(name.endswith(".jar") for name in zipfile.ZipFile(wheel).namelist()):
        sys.exit(f"{wheel} has no Java classes; `python tools/java_classes.py` shows the reason")
    return wheel


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
