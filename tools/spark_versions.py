"""Run tests/jobs/smoke.py, and tests of the Connect server, on other releases of PySpark than the installed release.

Each release is downloaded once, from pip's package index, and its source archive is unpacked into its own folder.
Building and installing a wheel from it would take half a minute longer, for the same files.
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
CONNECT_TESTS = [
    "test_a_client_gets_the_results_of_spark_and_its_queries_are_jobs",
    "test_a_client_that_is_killed_leaves_no_running_job_after_two_seconds",
]
"""Tests of tests/extension/test_connect_server.py that depend on the internals of Spark's server."""
UNPACKED = {"pyspark": "pyspark", "deps/jars": "pyspark/jars", "deps/bin": "pyspark/bin"}
"""Folders of a source archive, and the folders that they are unpacked to."""
CONCURRENCY = 2
"""Releases that are tested concurrently, so that downloads overlap with tests."""


def release_folder(version: str, folder: Path) -> Path:
    """Return the folder of a release, such as 4.0; download its newest patch release if needed."""
    target = folder / version
    if (target / ".done").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder) as downloads:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command = [*pip, "--no-binary", "pyspark", "--dest", downloads, f"pyspark=={version}.*"]
        download = subprocess.run(command, capture_output=True, text=True, check=False)
        if download.returncode:
            raise SystemExit(f"pyspark {version} cannot be downloaded:\n{download.stderr[-2000:]}")
        (archive,) = Path(downloads).glob("*.tar.gz")
        unpack(archive, target)
    (target / ".done").touch()
    return target


def unpack(archive: Path, target: Path) -> None:
    """Unpack the parts of a source archive that a driver and its workers need."""
    with tarfile.open(archive) as files:
        for member in files:
            inside = member.name.partition("/")[2]
            for source, destination in UNPACKED.items():
                if inside.startswith(f"{source}/"):
                    member.name = destination + inside.removeprefix(source)
                    files.extract(member, target, filter="data")


def run_tests(version: str, folder: Path) -> bool:
    """Run pipelines and Connect tests on a release; print their output, and return whether all succeed."""
    started = time.time()
    environ = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    home = release_folder(version, folder)
    environ["PYTHONPATH"] = os.pathsep.join([str(home), environ["PYTHONPATH"]])
    environ["SPARK_HOME"] = str(home / "pyspark")
    downloaded = time.time()
    with tempfile.TemporaryDirectory(prefix="penstock-smoke-") as work:
        command = [sys.executable, str(SMOKE), work]
        smoke = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, cwd=work)
    tests = [f"{ROOT / 'tests/extension/test_connect_server.py'}::{name}" for name in CONNECT_TESTS]
    pytest = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    connect_tests = subprocess.run(
        [*pytest, *tests], env=environ, capture_output=True, text=True, check=False, cwd=ROOT
    )
    is_expected_release = f"Spark {version}." in smoke.stdout
    durations = f"PySpark {version}: {downloaded - started:.0f} s to download, {time.time() - downloaded:.0f} s to run"
    connect = "Connect clients: passed" if connect_tests.returncode == 0 else connect_tests.stdout[-4000:]
    errors = "" if smoke.returncode == 0 and is_expected_release else smoke.stderr[-4000:]
    print(f"{durations}\n{smoke.stdout}{connect}\n{errors}", flush=True)
    return smoke.returncode == 0 and is_expected_release and connect_tests.returncode == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "spark", help="folder for the releases")
    parser.add_argument("versions", nargs="+", help="such as 4.0 4.1")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    others = [version for version in arguments.versions if not pyspark.__version__.startswith(f"{version}.")]
    print(f"All tests run on PySpark {pyspark.__version__}; smoke tests on {', '.join(others)}", flush=True)
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        results = list(pool.map(lambda version: run_tests(version, arguments.folder), others))
    sys.exit(not all(results))
