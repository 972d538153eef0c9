"""Tokens: a write with a token that the target already has writes nothing. Each token is a file in `TOKENS_FOLDER`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.io.filesystem import HadoopPath

TOKENS_FOLDER = ".penstock-tokens"


def token_file(token: str) -> str:
    """Return the path of a token's file within the target."""
    return f"{TOKENS_FOLDER}/{hashlib.sha256(token.encode()).hexdigest()[:32]}.json"


def is_token_file(path: str) -> bool:
    """Whether a path within a target is a token file; all runs of a write with the same token use the same path."""
    return path.startswith(f"{TOKENS_FOLDER}/")


def has_token(target: HadoopPath, token: str) -> bool:
    """Whether a folder already has the rows of the write with a token."""
    return target.child(token_file(token)).exists()


def write_token(staging: HadoopPath, token: str, files: Sequence[str]) -> str:
    """Write a token file into the staging folder of the files, and return its path within that folder."""
    name = token_file(token)
    staging.child(TOKENS_FOLDER).make()
    content = {"token": token, "files": len(files), "written": staging.name}
    staging.child(name).write(json.dumps(content).encode())
    return name


def is_written_by(file: HadoopPath, staging: str) -> bool:
    """Whether a token file comes from a staging folder, and not from another run with the same token."""
    return bool(json.loads(file.read()).get("written") == staging.rpartition("/")[2])


def copy_tokens(target: HadoopPath, staging: HadoopPath) -> None:
    """Copy the token files of a target into the staging folder that replaces it."""
    if not target.child(TOKENS_FOLDER).exists():
        return
    staging.child(TOKENS_FOLDER).make()
    for name, _, _ in target.child(TOKENS_FOLDER).entries():
        if not name.startswith(".") and not staging.child(f"{TOKENS_FOLDER}/{name}").exists():
            target.child(f"{TOKENS_FOLDER}/{name}").copy_to(staging.child(f"{TOKENS_FOLDER}/{name}"))
