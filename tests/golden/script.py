"""Parses SQL files in the format of Spark's golden files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_DIRECTIVE = re.compile(r"^--(SET|IMPORT)\s+(.*)$")
_END = re.compile(r";[ \t]*(?:--[^\n]*)?(?:\n|\Z)")
_QUERY = re.compile(r"^(?:SELECT|WITH|VALUES|TABLE|FROM|\()", re.IGNORECASE)


@dataclass
class Script:
    """The settings and statements of a file."""

    settings: dict[str, str] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)


def read_script(path: Path) -> Script:
    """Read a file; ``--SET`` adds settings, and ``--IMPORT`` the statements of another file."""
    script, lines = Script(), []
    for line in path.read_text().splitlines():
        directive = _DIRECTIVE.match(line)
        if directive is None:
            if not line.lstrip().startswith("--"):
                lines.append(line)
        elif directive[1] == "SET":
            script.settings |= dict(pair.strip().split("=", 1) for pair in directive[2].split(",") if "=" in pair)
        else:
            imported = read_script(_root(path) / directive[2].strip())
            script.settings |= imported.settings
            script.statements += imported.statements
    script.statements += [text.strip() for text in _END.split("\n".join(lines) + "\n") if text.strip()]
    return script


def is_query(statement: str) -> bool:
    """Whether a statement is a query, of which rows can be compared."""
    return _QUERY.match(statement) is not None


def _root(path: Path) -> Path:
    """Return the folder ``inputs``, to which imports are relative; for other files, their own folder."""
    return next((folder for folder in path.parents if folder.name == "inputs"), path.parent)
