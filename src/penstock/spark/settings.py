"""The settings of Spark sessions, many in one call; and those that the tasks of a thread see."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.spark import answers
from penstock.spark.handles import LocalProperties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.spark.handles import Session


def is_true(value: object) -> bool:
    """Whether the value of a setting means true: Spark ignores its case, and blanks around it; None is false."""
    return str(value).strip().lower() == "true"


def read_settings(session: Session, prefix: str) -> dict[str, str]:
    """Return the settings whose names begin with a prefix; those of the session win over those of the context."""
    found = answers.facts(session._bridge.helper("SessionSettings").read(session, prefix))
    return {str(name): str(value) for name, value in found.items()}


def change_settings(session: Session, settings: Mapping[str, str]) -> None:
    """Set settings of a session."""
    session._bridge.helper("SessionSettings").set(session, json.dumps(dict(settings)))


def put_settings_back(session: Session, like: Session) -> None:
    """Give a session the settings of another one, and no others."""
    session._bridge.helper("SessionSettings").putBack(session, like)


def thread_properties(session: Session, users: LocalProperties, tag: str, description: str) -> LocalProperties:
    """Return the local properties of a thread whose jobs are to see the settings of a session.

    Parameters
    ----------
    users
        The local properties of the user's thread, see `jobs.user_properties`.
    tag
        The tag of the thread's Spark jobs, and their job group unless the user's thread has one.
    description
        What is said of the jobs, behind what the user says of them.
    """
    bridge = session._bridge
    return LocalProperties(bridge, bridge.helper("SessionSettings").threadProperties(users, session, tag, description))
