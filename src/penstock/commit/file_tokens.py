"""The tokens of what was written to a folder of files: one small file for each, in a hidden folder within it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.filesystem import Folder

FOLDER = ".penstock-tokens"


def token_file(token: str) -> str:
    """Return the path of a token's file within the target."""
    return f"{FOLDER}/{hashlib.sha256(token.encode()).hexdigest()[:32]}.json"


def is_token_file(path: str) -> bool:
    """Whether a path within a target is the file of a token: a name that several runs want."""
    return path.startswith(f"{FOLDER}/")


def has_token(target: Folder, token: str) -> bool:
    """Whether what a token stands for is in a folder."""
    return target.child(token_file(token)).exists()


def write_token(staging: Folder, token: str, files: Sequence[str]) -> str:
    """Put a token's file beside the files it stands for; return its path."""
    name = token_file(token)
    staging.child(FOLDER).make()
    content = {"token": token, "files": len(files), "written": staging.name}
    staging.child(name).write(json.dumps(content).encode())
    return name


def is_written_by(file: Folder, staging: str) -> bool:
    """Whether a token's file came from a staging folder, and not from that of another run of the token."""
    return bool(json.loads(file.read()).get("written") == staging.rpartition("/")[2])


def keep_tokens(target: Folder, staging: Folder) -> None:
    """Copy the tokens of a folder into the one that replaces it."""
    if not target.child(FOLDER).exists():
        return
    staging.child(FOLDER).make()
    for name, _, _ in target.child(FOLDER).entries():
        if not name.startswith(".") and not staging.child(f"{FOLDER}/{name}").exists():
            target.child(f"{FOLDER}/{name}").copy_to(staging.child(f"{FOLDER}/{name}"))
