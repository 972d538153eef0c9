"""Tokens of the writes to a folder of files, each in a small file in a hidden folder inside it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.io.filesystem import Folder

FOLDER = ".penstock-tokens"


def token_file(token: str) -> str:
    """Return the path of a token's file within the target."""
    return f"{FOLDER}/{hashlib.sha256(token.encode()).hexdigest()[:32]}.json"


def is_token_file(path: str) -> bool:
    """Whether a path within a target is a token file, whose name several runs of a job share."""
    return path.startswith(f"{FOLDER}/")


def has_token(target: Folder, token: str) -> bool:
    """Whether a folder has the rows of a token."""
    return target.child(token_file(token)).exists()


def write_token(staging: Folder, token: str, files: Sequence[str]) -> str:
    """Write a token file beside the files of its write, and return its path within the staging folder."""
    name = token_file(token)
    staging.child(FOLDER).make()
    content = {"token": token, "files": len(files), "written": staging.name}
    staging.child(name).write(json.dumps(content).encode())
    return name


def is_written_by(file: Folder, staging: str) -> bool:
    """Whether a token file comes from a staging folder, not from that of another run with the same token."""
    return bool(json.loads(file.read()).get("written") == staging.rpartition("/")[2])


def keep_tokens(target: Folder, staging: Folder) -> None:
    """Copy the token files of a target into the staging folder that replaces it."""
    if not target.child(FOLDER).exists():
        return
    staging.child(FOLDER).make()
    for name, _, _ in target.child(FOLDER).entries():
        if not name.startswith(".") and not staging.child(f"{FOLDER}/{name}").exists():
            target.child(f"{FOLDER}/{name}").copy_to(staging.child(f"{FOLDER}/{name}"))
