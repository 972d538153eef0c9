"""Output of a starting JVM: known noise is dropped, everything else is printed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

NOISE = [
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "WARNING: package sun.security.action not in java.base",
    "NOTE: Picked up JDK_JAVA_OPTIONS: -Dx=y",
    "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
    'Setting default log level to "WARN".',
    'Setting Spark log level to "ERROR".',
    "To adjust logging level use sc.setLogLevel(newLevel).",
    "26/11/24 05:26:15 WARN Utils: Your hostname resolves to a loopback address",
    "26/11/24 05:26:16 WARN NativeCodeLoader: Unable to load native-hadoop library",
]
PRINTED = [
    "print() of a Python worker",
    "26/11/24 05:26:16 ERROR Executor: Exception in task",
    "a WARNING: in a sentence",
]
PROGRAM = """
import subprocess, sys, time
from pyspark.core import context
from penstock.errors import PenstockError
from penstock.spark.bridge.quiet_start import quiet_start

def launch(conf):
    subprocess.run([sys.executable, "-c", {jvm!r}])
    if {fails}:
        raise RuntimeError("the gateway exited")
    return "gateway"

plain = context.launch_gateway = launch
try:
    with quiet_start():
        print(context.launch_gateway(None), flush=True)
except PenstockError as error:
    print(error)
assert context.launch_gateway is plain
time.sleep(0.2)
print("Python's own", file=sys.stderr)
"""


def started(lines: list[str], *, fails: bool) -> Any:
    jvm = f"import sys\nfor line in {lines!r}: print(line, file=sys.stderr)"
    program = PROGRAM.format(jvm=jvm, fails=fails)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)


def test_noise_is_dropped() -> None:
    done = started([*NOISE, *PRINTED], fails=False)
    assert done.stdout == "gateway\n"
    assert done.stderr.splitlines() == [*PRINTED, "Python's own"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([*NOISE, "Exception in thread main: bad memory", "    at Main"], "Exception in thread main: bad memory"),
        (
            ["Invalid maximum heap size: -Xmxabc", "Error: Could not create the Java Virtual Machine."],
            "Invalid maximum heap size: -Xmxabc",
        ),
        (NOISE, "the gateway exited"),
    ],
)
def test_a_jvm_that_does_not_start(lines: Any, cause: Any) -> None:
    done = started(lines, fails=True)
    assert done.stdout.startswith("Spark could not be started\n")
    assert f"cause: {cause}" in done.stdout
    assert "hint:  --verbose" in done.stdout
    assert done.stderr == "Python's own\n"
