"""The Spark Connect server in this driver's JVM (``org.apache.spark.sql.connect.service.SparkConnectService``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from penstock.errors import SessionError
from penstock.spark.jvm import root_cause

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge

_ABANDONED = {
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "1s",
    "spark.connect.execute.manager.detachedTimeout": "5s",
    "spark.connect.execute.manager.maintenanceInterval": "500ms",
}
"""When a query is interrupted whose client has gone: within seven seconds, and not after Spark's seven minutes.

The server ends its stream of answers each second, and a client that lives asks for it again at once. It has five
seconds for that: a client that does something else meanwhile, or a network that is slow, is no reason to lose a query.
"""
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService"


def settings(host: str, port: int, token: str | None) -> dict[str, str]:
    """Return the settings by which an application's server is reached; they are read when it starts.

    Parameters
    ----------
    host, port
        Where it listens; port 0 is a free one.
    token
        What clients have to know; None where everybody may come.
    """
    address = {"spark.connect.grpc.binding.address": host, "spark.connect.grpc.binding.port": str(port)}
    found = {**_ABANDONED, **address}
    return found if token is None else {**found, "spark.connect.authenticate.token": token}


def start(bridge: Bridge) -> int:
    """Start the server of an application; return its port.

    Raises
    ------
    SessionError
        If it does not start: its port is taken, or Spark has no Connect server.
    """
    try:
        service = bridge.companion(_SERVICE)
        service.start(bridge.spark.sparkContext._jsc.sc())
        return int(service.localPort())
    except Py4JError as error:
        raise SessionError(
            "the Spark Connect server does not start",
            cause=root_cause(error),
            hint="choose another --port; Spark's own package has to hold spark-connect, as that of PyPI does",
        ) from error


def stop(bridge: Bridge) -> None:
    """Stop the server of an application; queries that run are interrupted."""
    bridge.companion(_SERVICE).stop(bridge.none, bridge.none)
