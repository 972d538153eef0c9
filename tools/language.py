"""Find vague words: names that contain vague words, and the frequency of the words per 1,000 lines.

``python -m tools.language [FILE OR FOLDER ...]`` prints each name with its location, and then the frequency.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "bench", "tools", "examples")
VAGUE_WORDS = ("found", "one", "told", "made", "given", "asked", "kept", "known", "place", "wish")
INHERITED_NAMES = {"addInPlace"}
"""Names that a base class of another library prescribes."""
_WORD = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(VAGUE_WORDS)}|places|wishes)(?![A-Za-z])", re.IGNORECASE)
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True)
class VagueName:
    """A name that contains a vague word, and the line that defines it."""

    path: Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}"


def python_files(paths: Iterable[Path]) -> list[Path]:
    """Return the Python files among paths and in folders."""
    files = (file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path]))
    return sorted(set(files))


def vague_names(path: Path) -> Iterator[VagueName]:
    """Yield the names with a vague word that a module defines, including the name of the module."""
    names = {(0, path.stem), *_defined_names(ast.parse(path.read_text()))}
    for line, name in sorted(names):
        if name not in INHERITED_NAMES and any(_WORD.fullmatch(part) for part in _NAME_PART.findall(name)):
            yield VagueName(path, line, name)


def vague_words(text: str) -> int:
    """Return how often vague words occur in a text.

    >>> vague_words("the rows that were found in one place")
    3
    """
    return len(_WORD.findall(text))


def _defined_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


def main() -> None:
    """Print the vague names of the paths on the command line, or of the project, and the frequency of vague words."""
    files = python_files(map(Path, sys.argv[1:] or FOLDERS))
    names = [name for path in files for name in vague_names(path)]
    texts = [path.read_text() for path in files]
    lines = sum(text.count("\n") for text in texts)
    words = sum(map(vague_words, texts))
    print(*names, f"{len(names)} names; {words} words, {words / lines * 1000:.1f} per 1,000 lines", sep="\n")


if __name__ == "__main__":
    main()
