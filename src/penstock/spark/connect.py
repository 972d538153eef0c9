"""The Spark Connect server in this driver's JVM (``org.apache.spark.sql.connect.service.SparkConnectService``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from penstock.errors import SessionError
from penstock.spark.jvm import root_cause

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge

_ABANDONED = {
    "spark.connect.execute.manager.detachedTimeout": "1s",
    "spark.connect.execute.manager.maintenanceInterval": "500ms",
}
"""A query whose client has gone is interrupted so soon, and not after Spark's 5 minutes.

A client that only fetches its answer in another call is back within milliseconds, and where the network is down for a
while, the server does not see the client go.
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
