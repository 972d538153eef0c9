"""Where Spark encrypts what it sends, no row of an adaptive exchange crosses the network in plain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.loopback import Wiretap, machine_address, spare_address

if TYPE_CHECKING:
    from collections.abc import Mapping

JOB = Path(__file__).parent.parent / "jobs" / "marked_rows.py"
PASSWORD = "hunter2-of-the-key-store"
AUTHENTICATED = {"spark.authenticate": "true", "spark.authenticate.secret": "hunter2-of-the-application"}
PLAIN = "not encrypted"
ENCRYPTED: Mapping[str, Mapping[str, str]] = {
    "TLS": {
        "spark.ssl.rpc.enabled": "true",
        "spark.ssl.rpc.protocol": "TLSv1.3",
        "spark.ssl.rpc.keyStore": "{keys}",
        "spark.ssl.rpc.keyStorePassword": PASSWORD,
        "spark.ssl.rpc.keyPassword": PASSWORD,
        "spark.ssl.rpc.trustStore": "{keys}",
        "spark.ssl.rpc.trustStorePassword": PASSWORD,
    },
    "SASL": AUTHENTICATED | {"spark.authenticate.enableSaslEncryption": "true"},
    "AES": AUTHENTICATED | {"spark.network.crypto.enabled": "true"},
}
IN_ONE_STAGE, IN_PIECES = "REBALANCE(least loaded of 4)", "REBALANCE(to the next free task)"
MASTERS = [
    pytest.param(("local[4]", spare_address), id="local"),
    # Executors of their own are known by the address that they call the driver from, which is never a spare one.
    pytest.param(
        ("local-cluster[2,2,1024]", machine_address), id="cluster", marks=[pytest.mark.slow, pytest.mark.cluster]
    ),
]

pytestmark = pytest.mark.thorough


@dataclass(frozen=True)
class Sent:
    """What the job says of each case, and what a stranger could read of it meanwhile."""

    results: Mapping[str, Any]
    packets: bytes

    def marks(self, case: str) -> int:
        """Return how many of a hundred rows a stranger could read."""
        marks = (md5(f"{case} {number}".encode()).hexdigest().encode() for number in range(0, 20_000, 200))
        return sum(mark in self.packets for mark in marks)


@pytest.fixture(scope="module", params=MASTERS)
def sent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sent:
    master, address_of = request.param
    keys = tmp_path_factory.mktemp("keys") / "keys.p12"
    names = ("-alias", "spark", "-dname", "CN=spark", "-keyalg", "EC", "-storetype", "PKCS12", "-keystore", keys)
    make_keys = ["keytool", "-genkeypair", *names, "-storepass", PASSWORD, "-keypass", PASSWORD, "-validity", "2"]
    subprocess.run(make_keys, check=True, capture_output=True)
    cases = {name: {key: value.format(keys=keys) for key, value in one.items()} for name, one in ENCRYPTED.items()}
    address = address_of()
    # Executors listen there. Python workers and their JVMs use 127.0.0.1, where plain Spark sends rows in plain, too.
    environ = os.environ | {"SPARK_LOCAL_IP": address, "SPARK_LOCAL_HOSTNAME": address}
    command = [sys.executable, JOB, master, json.dumps({PLAIN: {}} | cases)]
    with Wiretap(address) as wiretap:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environ)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-4000:]
    return Sent(json.loads(lines[0].removeprefix("RESULT ")), wiretap.recorded)


def test_a_stranger_reads_rows_that_are_not_encrypted(sent: Sent) -> None:
    """Without this, the next test would prove nothing: its observer could be blind."""
    assert sent.results[PLAIN]["rows"] == [20_000, 20_000]
    assert IN_ONE_STAGE in sent.results[PLAIN]["edges"]
    assert sent.marks(PLAIN) > 50  # of a hundred; a quarter stays in its task


@pytest.mark.parametrize("case", ENCRYPTED)
def test_a_stranger_reads_no_row_of_an_encrypted_session(sent: Sent, case: str) -> None:
    assert sent.results[case]["rows"] == [20_000, 20_000]
    assert sent.marks(case) == 0
    assert IN_PIECES in sent.results[case]["edges"]
