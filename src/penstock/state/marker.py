"""The file in a checkpoint that names the process whose query runs on it."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.commit.owner import Owner

if TYPE_CHECKING:
    from penstock.spark.filesystem import Folder

MARKER = "_penstock_query.json"


def marked(checkpoint: Folder) -> Owner | None:
    """Return the process that a checkpoint's marker names, dead or alive."""
    content = checkpoint.child(MARKER).read_if_there()
    return None if content is None else Owner.told(content)


def runs_elsewhere(checkpoint: Folder) -> Owner | None:
    """Return the process that a checkpoint's marker names, if it is another one of this machine that is not gone."""
    found, me = marked(checkpoint), Owner.me()
    if found is None or found == me or found.host != me.host:
        return None
    return None if found.is_alive() is False else found


def mark(checkpoint: Folder) -> bytes:
    """Say that this process runs the query of a checkpoint, and return what was written."""
    content = json.dumps(asdict(Owner.me()) | {"start": uuid.uuid4().hex}).encode()
    checkpoint.child(MARKER).write(content, overwrite=True)
    return content


def unmark(checkpoint: Folder, content: bytes) -> None:
    """Take back what `mark` has written; what another start of the query has written since stays."""
    file = checkpoint.child(MARKER)
    if file.read_if_there() == content:
        file.delete()
