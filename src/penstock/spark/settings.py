"""The settings of Spark sessions, many in one call; and those that the tasks of a thread see."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.spark import answers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.spark.jvm import Bridge


def read_settings(bridge: Bridge, session: Any, prefix: str) -> dict[str, str]:
    """Return the settings whose names begin with a prefix; those of the session win over those of the context."""
    found = answers.facts(bridge.helper("SessionSettings").read(session, prefix))
    return {str(name): str(value) for name, value in found.items()}


def change_settings(bridge: Bridge, session: Any, settings: Mapping[str, str]) -> None:
    """Set settings of a session."""
    bridge.helper("SessionSettings").set(session, json.dumps(dict(settings)))


def thread_properties(bridge: Bridge, session: Any, users: Any) -> Any:
    """Return the local properties of a thread whose jobs are to see the settings of a session.

    Parameters
    ----------
    users
        The local properties of the user's thread, see `jobs.user_properties`.
    """
    return bridge.helper("SessionSettings").threadProperties(users, session)
