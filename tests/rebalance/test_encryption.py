"""If Spark encrypts its connections, no row of an adaptive exchange is sent unencrypted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import md5
from typing import Any

import pytest

from tests.support.loopback import Wiretap, machine_address, spare_address
from tests.support.paths import TESTS

JOB = TESTS / "jobs" / "marked_rows.py"
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
BARRIER, PULLED = "REBALANCE(least loaded of 4)", "REBALANCE(to the next free task)"
MASTERS = [
    pytest.param(("local[4]", spare_address), id="local"),
    # The cluster's executors use the address from which they call the driver, which is never a spare address.
    pytest.param(
        ("local-cluster[2,2,1024]", machine_address), id="cluster", marks=[pytest.mark.slow, pytest.mark.cluster]
    ),
]

pytestmark = pytest.mark.thorough


@dataclass(frozen=True)
class Sent:
    """The job's result for each case, and the packets recorded meanwhile."""

    results: Mapping[str, Any]
    packets: bytes

    def marks(self, case: str) -> int:
        """Return how many of a hundred rows are readable in the packets."""
        marks = (md5(f"{case} {number}".encode()).hexdigest().encode() for number in range(0, 20_000, 200))
        return sum(mark in self.packets for mark in marks)


@pytest.fixture(scope="module", params=MASTERS)
def sent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sent:
    master, address_of = request.param
    keys = tmp_path_factory.mktemp("keys") / "keys.p12"
    names = ("-alias", "spark", "-dname", "CN=spark", "-keyalg", "EC", "-storetype", "PKCS12", "-keystore", keys)
    make_keys = ["keytool", "-genkeypair", *names, "-storepass", PASSWORD, "-keypass", PASSWORD, "-validity", "2"]
    subprocess.run(make_keys, check=True, capture_output=True)
    cases = {
        name: {key: value.format(keys=keys) for key, value in settings.items()} for name, settings in ENCRYPTED.items()
    }
    address = address_of()
    # Executors listen there. Python workers and their JVMs use 127.0.0.1, which plain Spark does not encrypt either.
    environ = os.environ | {"SPARK_LOCAL_IP": address, "SPARK_LOCAL_HOSTNAME": address}
    command = [sys.executable, JOB, master, json.dumps({PLAIN: {}} | cases)]
    with Wiretap(address) as wiretap:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environ)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-4000:]
    return Sent(json.loads(lines[0].removeprefix("RESULT ")), wiretap.packets)


def test_rows_of_an_unencrypted_session_are_readable(sent: Sent) -> None:
    """Shows that the recording works, which the next test relies on."""
    assert sent.results[PLAIN]["rows"] == [20_000, 20_000]
    assert BARRIER in sent.results[PLAIN]["edges"]
    assert sent.marks(PLAIN) > 50  # of a hundred; a quarter of the rows stays in its task


@pytest.mark.parametrize("case", ENCRYPTED)
def test_no_row_of_an_encrypted_session_is_readable(sent: Sent, case: str) -> None:
    assert sent.results[case]["rows"] == [20_000, 20_000]
    assert sent.marks(case) == 0
    assert PULLED in sent.results[case]["edges"]
