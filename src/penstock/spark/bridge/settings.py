"""Settings of Spark sessions, read or changed in a single call, and local properties of threads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from penstock.spark.bridge import answers
from penstock.spark.bridge.handles import LocalProperties, Session


def is_true(value: object) -> bool:
    """Whether a setting's value means true, ignoring case and surrounding blanks, like Spark; None is false."""
    return str(value).strip().lower() == "true"


def read_settings(session: Session, prefix: str) -> dict[str, str]:
    """Return the settings with a key prefix; the session overrides the `SparkContext`."""
    settings = answers.facts(session._bridge.helper("SessionSettings").read(session, prefix))
    return {str(name): str(value) for name, value in settings.items()}


def effective_settings(session: Session, names: Sequence[str]) -> dict[str, str]:
    """Return the values of settings in a session, or their defaults; settings without a default are left out."""
    settings = answers.facts(session._bridge.helper("SessionSettings").effective(session, list(names)))
    return {str(name): str(value) for name, value in settings.items()}


def change_settings(session: Session, settings: Mapping[str, str]) -> None:
    """Change some settings of a session."""
    session._bridge.helper("SessionSettings").set(session, json.dumps(dict(settings)))


def clone_with(session: Session, settings: Mapping[str, str]) -> Session:
    """Return a clone of a session with some settings changed."""
    clone = session.clone()
    change_settings(clone, settings)
    return clone


def reset_settings(session: Session, template: Session) -> None:
    """Replace all settings of a session by those of another session."""
    session._bridge.helper("SessionSettings").restore(session, template)


def thread_properties(session: Session, user: LocalProperties, tag: str, description: str) -> LocalProperties:
    """Return the local properties for a thread whose jobs use the settings of a session.

    `user` has the properties of the user's thread. `tag` is the tag of the Spark jobs, and also their job group if
    `user` has no job group. `description` is appended to the job description of `user`.
    """
    bridge = session._bridge
    return LocalProperties(bridge, bridge.helper("SessionSettings").threadProperties(user, session, tag, description))
