"""The Spark Connect server in this driver's JVM (``org.apache.spark.sql.connect.service.SparkConnectService``)."""

from __future__ import annotations

from py4j.protocol import Py4JError

from penstock.errors import SessionError
from penstock.spark.bridge.jvm import Bridge, root_cause

PORT = "spark.connect.grpc.binding.port"
ADDRESS = "spark.connect.grpc.binding.address"
TOKEN = "spark.connect.authenticate.token"  # noqa: S105 - the name of a setting
_ARTIFACT_ISOLATION = {
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}
"""Settings that isolate clients' artifacts from each other, as in Spark's own server (``SparkConnectServer``)."""


def settings(host: str, port: int) -> dict[str, str]:
    """Return the settings with which a JVM must start to run the Connect server; port 0 selects a free port.

    The token is not included: PySpark passes settings on the JVM's command line, which every user of the machine can
    read. The JVM gets the token in its environment.
    """
    return {ADDRESS: host, PORT: str(port), **_ARTIFACT_ISOLATION}


def ignore_default_token(bridge: Bridge) -> None:
    """Remove the token of ``spark-defaults.conf``, so that Spark uses the token of the environment variable."""
    bridge.spark.sparkContext._jsc.sc().conf().remove(TOKEN)


def has_default_token(bridge: Bridge) -> bool:
    """Whether ``spark-defaults.conf`` has a token, which Spark would prefer to that of the environment variable."""
    return bool(bridge.spark.sparkContext._jsc.sc().conf().contains(TOKEN))


def start(bridge: Bridge) -> int:
    """Start the server of an application; return its port, or raise `SessionError` if it does not start."""
    try:
        return int(bridge.helper("ConnectServer").start(bridge.spark.sparkContext._jsc.sc()))
    except Py4JError as error:
        raise SessionError(
            "the Spark Connect server does not start",
            cause=root_cause(error),
            hint="choose another --port, or install a Spark that includes spark-connect, as pyspark from PyPI does",
        ) from error


def stop(bridge: Bridge) -> None:
    """Stop the server of an application; running queries are interrupted."""
    bridge.helper("ConnectServer").stop()
