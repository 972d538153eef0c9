"""Compile the package's Java classes with javac, to check the sources or to build the jar of the wheel.

    python tools/java_classes.py                 check the sources; any warning is an error
    python tools/java_classes.py --jar FOLDER    create FOLDER/penstock-spark4.3.jar, and print its name

Spark's jars are those of SPARK_HOME, or else of the installed PySpark.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "penstock"
OLDEST_JAVA = "17"
"""The oldest release of Java that Spark 4 supports."""


class CannotCompileError(Exception):
    """There is no Java compiler or no Spark to compile against, or the classes do not compile."""


def sources() -> list[Path]:
    """Return the Java sources of all rooms."""
    return sorted(PACKAGE.glob("*/java/**/*.java"))


def javac() -> str:
    """Return the path of the Java compiler; raise `CannotCompileError` if there is none."""
    home = os.environ.get("JAVA_HOME", "")
    compiler = shutil.which("javac", path=str(Path(home) / "bin")) if home else None
    compiler = compiler or shutil.which("javac")
    if compiler is None:
        problem = f"neither JAVA_HOME ({home}) nor the PATH has a javac" if home else "the PATH has no javac"
        raise CannotCompileError(f"{problem}: it comes with a JDK {OLDEST_JAVA} or newer, not with a JRE")
    return compiler


def spark_jars() -> Path:
    """Return the folder of Spark's jars; raise `CannotCompileError` if there is none."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        package = importlib.util.find_spec("pyspark")
        if package is None or not package.submodule_search_locations:
            raise CannotCompileError("there is no Spark: SPARK_HOME is not set, and PySpark is not installed here")
        home = package.submodule_search_locations[0]
    jars = Path(home) / "jars"
    if not any(jars.glob("spark-core_*.jar")):
        raise CannotCompileError(f"{jars} does not contain Spark")
    return jars


def spark_version(jars: Path) -> str:
    """Return the version of Spark, such as ``4.3.0``."""
    (core,) = jars.glob("spark-core_*.jar")
    return re.fullmatch(r"spark-core_[\d.]+-(.+)\.jar", core.name)[1]


def compile_to(folder: Path, jars: Path) -> str | None:
    """Compile all classes into a folder; return the messages of javac, or None if there are none."""
    command = [javac(), "--release", OLDEST_JAVA, "-proc:none", "-cp", f"{jars}/*", "-d", str(folder)]
    # "path" would warn of jars that the manifests of Spark's jars name but Spark does not contain.
    command += ["-Xlint:all,-path", "-Werror", *map(str, sources())]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if completed.returncode == 0 else completed.stdout + completed.stderr


def make_jar(folder: Path) -> Path:
    """Create a reproducible jar for the Spark of `spark_jars`; return its path."""
    jars = spark_jars()
    version = spark_version(jars)
    major, minor, *_ = version.split(".")
    jar = folder / f"penstock-spark{major}.{minor}.jar"
    with tempfile.TemporaryDirectory() as classes:
        messages = compile_to(Path(classes), jars)
        if messages is not None:
            raise CannotCompileError(f"the classes do not compile with Spark {version}:\n{messages}")
        files = {"META-INF/MANIFEST.MF": f"Manifest-Version: 1.0\r\nSpark-Version: {version}\r\n\r\n".encode()}
        for file in sorted(Path(classes).rglob("*.class")):
            files[file.relative_to(classes).as_posix()] = file.read_bytes()
        with zipfile.ZipFile(jar, "w") as archive:
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return jar


def check() -> int:
    """Compile the sources and return the exit code; a missing compiler is an error only in continuous integration."""
    try:
        jars = spark_jars()
        with tempfile.TemporaryDirectory() as classes:
            messages = compile_to(Path(classes), jars)
    except CannotCompileError as error:
        print(f"NOT CHECKED: the Java sources could not be compiled: {error}.")
        return 1 if os.environ.get("ALL_CHECKS") == "1" else 0
    if messages is not None:
        print(messages)
        return 1
    print(f"javac compiles all {len(sources())} Java sources with Spark {spark_version(jars)} without warnings")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jar", type=Path, metavar="FOLDER")
    folder = parser.parse_args().jar
    if folder is None:
        sys.exit(check())
    print(make_jar(folder))
