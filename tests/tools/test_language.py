"""Names without vague words, and texts with few of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.language import FOLDERS, ROOT, python_files, vague_names, vague_words

MAX_PER_1000_LINES = 6
"""Three times the frequency in sqlglot, pyiceberg and narwhals: counts such as "one task" are words of this domain."""
FILES = python_files(ROOT / folder for folder in FOLDERS)


def test_no_name_contains_a_vague_word() -> None:
    assert [str(name) for path in FILES for name in vague_names(path)] == []


def test_vague_words_are_rare() -> None:
    texts = [path.read_text() for path in FILES if {"src", "tests"} & set(path.relative_to(ROOT).parts[:1])]
    lines = sum(text.count("\n") for text in texts)
    assert sum(map(vague_words, texts)) <= MAX_PER_1000_LINES * lines / 1000


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("found = 1", ["found"]),
        ("for one in rows: pass", ["one"]),
        ("self.last_known = 1", ["last_known"]),
        ("def asked_for(placed): pass", ["asked_for"]),
        ("def f(*, given_size=0): pass", ["given_size"]),
        ("class WishList: pass", ["WishList"]),
        ("MADE_BY = 1", ["MADE_BY"]),
        ("import a as told", ["told"]),
        ("with a as kept: pass", ["kept"]),
        ("[place for place in ()]", ["place"]),
        ("try: pass\nexcept OSError as kept: pass", ["kept"]),
        ("match a:\n    case [told, *made]: pass", ["made", "told"]),
        ("f(one=1, other=e.found)", []),
        ("replace = placeholder = zone = foundation = 'found one'", []),
        ("class A:\n    def addInPlace(self): pass", []),
    ],
)
def test_vague_names(tmp_path: Path, source: str, names: list[str]) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert [name.name for name in vague_names(path)] == names


def test_the_name_of_a_module_counts(tmp_path: Path) -> None:
    path = tmp_path / "told_times.py"
    path.touch()
    assert [name.name for name in vague_names(path)] == ["told_times"]
