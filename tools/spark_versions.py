"""Runs tests/jobs/smoke.py, and tests of the Connect server, on releases of PySpark beside the one that is installed.

Each is downloaded once, from the package index that pip is set up with, and unpacked into a folder of its own: a wheel
of it would be zipped, unzipped and checked for half a minute, and be no other files.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark

ROOT = Path(__file__).parent.parent
SMOKE = ROOT / "tests" / "jobs" / "smoke.py"
CLIENTS = [
    "test_a_client_gets_what_it_gets_of_spark_and_its_queries_are_jobs",
    "test_a_client_that_is_killed_leaves_no_running_job_after_two_seconds",
]
"""Of tests/extension/test_connect_server.py: what reaches into Spark's own server."""
PARTS = {"pyspark": "pyspark", "deps/jars": "pyspark/jars", "deps/bin": "pyspark/bin"}
"""What is taken of a source archive, and where it belongs."""
AT_ONCE = 2
"""Releases that are tried at the same time: while one is downloaded, another runs."""


def release(version: str, folder: Path) -> Path:
    """Return the folder of a release, such as 4.0; download the newest of them if it is not there."""
    target = folder / version
    if (target / ".done").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder) as downloads:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run(
            [*pip, "--no-binary", "pyspark", "--dest", downloads, f"pyspark=={version}.*"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"pyspark {version} cannot be downloaded:\n{done.stderr[-2000:]}")
        (archive,) = Path(downloads).glob("*.tar.gz")
        unpack(archive, target)
    (target / ".done").touch()
    return target


def unpack(archive: Path, target: Path) -> None:
    """Unpack what a driver and its workers need of a source archive."""
    with tarfile.open(archive) as files:
        for member in files:
            inside = member.name.partition("/")[2]
            for source, place in PARTS.items():
                if inside.startswith(f"{source}/"):
                    member.name = place + inside.removeprefix(source)
                    files.extract(member, target, filter="data")


def smoke(version: str, folder: Path) -> bool:
    """Run the pipelines on a release; print what they say, and return whether all of them are right."""
    started = time.time()
    environ = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    home = release(version, folder)
    environ["PYTHONPATH"] = os.pathsep.join([str(home), environ["PYTHONPATH"]])
    environ["SPARK_HOME"] = str(home / "pyspark")
    fetched = time.time()
    with tempfile.TemporaryDirectory(prefix="penstock-smoke-") as place:
        done = subprocess.run(
            [sys.executable, str(SMOKE), place], env=environ, capture_output=True, text=True, check=False, cwd=place
        )
    tests = [f"{ROOT / 'tests/extension/test_connect_server.py'}::{name}" for name in CLIENTS]
    pytest = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    clients = subprocess.run([*pytest, *tests], env=environ, capture_output=True, text=True, check=False, cwd=ROOT)
    is_version = f"Spark {version}." in done.stdout
    took = f"PySpark {version}: {fetched - started:.0f} s to have it, {time.time() - fetched:.0f} s to run"
    told = "Connect clients: right" if clients.returncode == 0 else clients.stdout[-4000:]
    errors = "" if done.returncode == 0 and is_version else done.stderr[-4000:]
    print(f"{took}\n{done.stdout}{told}\n{errors}", flush=True)
    return done.returncode == 0 and is_version and clients.returncode == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "spark", help="where the releases are kept")
    parser.add_argument("versions", nargs="+", help="such as 4.0 4.1")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    others = [version for version in arguments.versions if not pyspark.__version__.startswith(f"{version}.")]
    print(f"PySpark {pyspark.__version__} is the one that all tests run on; a smoke on {', '.join(others)}", flush=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        right = list(pool.map(lambda version: smoke(version, arguments.folder), others))
    sys.exit(not all(right))
