"""Publishing and undoing a rescale, with errors of the file system and batches of the query in between."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StateError
from penstock.state.checkpoint import Checkpoint
from penstock.state.journal import RECORDS_FOLDER, STAGING_FOLDER, Journal, Phase
from penstock.state.rescale import publish, undo
from tests.commit.local import LocalFolder

FILES = ("state/0/0/2.zip", "state/0/0/SSTs/7.sst", "state/0/4/2.zip")
METADATA = "state/0/_metadata/metadata"
STAGED = f"{STAGING_FOLDER}/checkpoint"


def offsets(number: int) -> str:
    return "v1\n" + json.dumps({"conf": {"spark.sql.shuffle.partitions": str(number)}}) + "\n{}"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def tree(folder: Path) -> dict[str, str]:
    """Return the text of all files except those in the folder of a rescale."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files if STAGING_FOLDER not in path.parts}


BEFORE = {
    "metadata": "{}",
    "offsets/1": offsets(4),
    "commits/1": "v1\n{}",
    "state/0/0/1.zip": "old",
    METADATA: "of 4",
}
STAGED_FILES = {"offsets/2": offsets(8), "commits/2": "v1\n{}", METADATA: "of 8"} | dict.fromkeys(FILES, "new")


def complete(*, barrier: bool) -> Journal:
    return Journal(1, 4, 8, Phase.PUBLISHING, FILES, {METADATA: BEFORE[METADATA]}, barrier=barrier)


def after(*, barrier: bool) -> dict[str, str]:
    return BEFORE | STAGED_FILES | {f"{RECORDS_FOLDER}/2.json": complete(barrier=barrier).json_bytes.decode()}


class Disk:
    """A disk on which the change with the number `refuses` fails; 0 for none."""

    def __init__(self) -> None:
        self.refuses, self.changes = 0, 0

    def wrap(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(*arguments: Any, **options: Any) -> Any:
            self.changes += 1
            if self.changes == self.refuses:
                raise OSError(errno.EIO, "the disk is away")
            return change(*arguments, **options)

        return maybe


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr("penstock.state.checkpoint.HadoopPath", LocalFolder)
    disk = Disk()
    for name in ("make", "write", "move_to", "delete"):
        monkeypatch.setattr(LocalFolder, name, disk.wrap(getattr(LocalFolder, name)))
    return disk


@pytest.fixture(params=[False, True], ids=["Spark 4.2", "Spark 4.1"])
def barrier(request: Any) -> bool:
    """Whether a barrier is needed, as for releases before 4.2."""
    return bool(request.param)


def staged(folder: Path, *, barrier: bool) -> tuple[Any, Journal]:
    """Return a checkpoint whose rescale from 4 to 8 is staged and checked, and its journal."""
    write(folder, BEFORE)
    write(folder / STAGED, STAGED_FILES)
    journal = complete(barrier=barrier)
    journal.save(LocalFolder(None, str(folder)))  # type: ignore[arg-type]
    return Checkpoint(None, str(folder)), journal  # type: ignore[arg-type]


@pytest.mark.usefixtures("disk")
def test_publish_and_undo(tmp_path: Path, barrier: Any) -> None:
    checkpoint, journal = staged(tmp_path / "a", barrier=barrier)
    publish(checkpoint, journal)
    assert tree(tmp_path / "a") == after(barrier=barrier)
    assert not (tmp_path / "a" / STAGING_FOLDER).exists()
    checkpoint, journal = staged(tmp_path / "b", barrier=barrier)
    undo(checkpoint, journal)
    assert tree(tmp_path / "b") == BEFORE
    assert not (tmp_path / "b" / STAGING_FOLDER).exists()


@pytest.mark.parametrize("then", ["finished", "undone"])
def test_after_any_refused_change_a_rescale_can_be_finished_or_undone(
    tmp_path: Path, disk: Disk, then: str, barrier: Any
) -> None:
    refused = 0
    for step in range(1, 99):
        folder = tmp_path / str(step)
        checkpoint, journal = staged(folder, barrier=barrier)
        disk.changes, disk.refuses = 0, step
        try:
            publish(checkpoint, journal)
        except StateError as error:
            refused += 1
            assert "in the middle of a rescale from 4 to 8" in error.message
            assert "the disk is away" in (error.cause or "")
        if disk.changes < step:
            break
        disk.refuses = 0
        remaining = Journal.load(checkpoint.folder)
        is_complete = (folder / "commits/2").exists() and not (folder / "offsets/3").exists()
        if remaining is not None and then == "finished":
            publish(checkpoint, remaining)
        elif remaining is not None and is_complete:
            with pytest.raises(StateError, match="is complete and cannot be aborted"):
                undo(checkpoint, remaining)
        elif remaining is not None:
            undo(checkpoint, remaining)
        assert tree(folder) == (after(barrier=barrier) if is_complete or then == "finished" else BEFORE), (
            f"change {step}"
        )
    assert refused >= 2 * len(FILES), "each file is moved after its target was deleted"


def test_an_undo_that_fails_can_be_repeated(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, barrier: Any
) -> None:
    for step in range(1, 99):
        folder = tmp_path / str(step)
        checkpoint, journal = staged(folder, barrier=barrier)
        disk.refuses = 0
        with monkeypatch.context() as patch:
            patch.setattr(LocalFolder, "move_to", lambda *_: False)
            with pytest.raises(StateError, match="could not be moved"):
                publish(checkpoint, journal)
        disk.changes, disk.refuses = 0, step
        try:
            undo(checkpoint, journal)
        except StateError as error:
            assert "the disk is away" in (error.cause or "")
        else:
            assert disk.changes < step
            break
        disk.refuses = 0
        remaining = Journal.load(checkpoint.folder)
        if remaining is not None:
            undo(checkpoint, remaining)
        assert tree(folder) == BEFORE, f"change {step}"
    assert step > len(FILES)


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("refusal", [OSError(errno.EXDEV, "on another volume"), OSError(errno.ENOSPC, "full"), None])
def test_a_move_that_is_refused_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: OSError | None, barrier: Any
) -> None:
    """With an exception, or without an exception if another file is in the way."""
    checkpoint, journal = staged(tmp_path, barrier=barrier)

    def refuse(_: LocalFolder, target: LocalFolder) -> bool:
        if refusal is not None:
            raise refusal
        write(tmp_path, {str(target.local_path): "foreign"})
        return False

    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "move_to", refuse)
        with pytest.raises(StateError, match="in the middle of a rescale") as raised:
            publish(checkpoint, journal)
    assert (refusal.strerror if refusal is not None else "could not be moved") in (raised.value.cause or "")
    assert not (tmp_path / "commits/2").exists()
    publish(checkpoint, journal)
    assert tree(tmp_path) == after(barrier=barrier)


@pytest.mark.usefixtures("disk")
def test_a_barrier_exists_while_a_rescale_is_partly_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark reads the newest entry of the log first, and refuses to start a query whose entry it cannot parse."""
    checkpoint, journal = staged(tmp_path, barrier=True)
    seen = []

    def watched(change: Callable[..., Any]) -> Callable[..., Any]:
        def change_and_check(*arguments: Any, **options: Any) -> Any:
            result = change(*arguments, **options)
            now = tree(tmp_path)
            seen.append("whole" if now in (BEFORE, after(barrier=True)) else "offsets/3" in now)
            return result

        return change_and_check

    for name in ("write", "move_to", "delete"):
        monkeypatch.setattr(LocalFolder, name, watched(getattr(LocalFolder, name)))
    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "move_to", lambda *_: False)
        with pytest.raises(StateError, match="could not be moved"):
            publish(checkpoint, journal)
    undo(checkpoint, journal)
    assert tree(tmp_path) == BEFORE
    publish(*staged(tmp_path, barrier=True))
    assert tree(tmp_path) == after(barrier=True)
    assert False not in seen
    assert seen.count(True) > 2 * len(FILES)


def continue_query(folder: Path, number: int, *, barrier: bool) -> dict[str, str]:
    """Simulate later batches, after which the logs no longer contain batch 2 and snapshots share SST files."""
    write(folder, after(barrier=barrier) if number == 8 else BEFORE)
    for name in ("offsets", "commits"):
        shutil.rmtree(folder / name)
        write(folder, {f"{name}/{batch}": offsets(number) if name == "offsets" else "v1\n{}" for batch in (151, 152)})
    write(folder, {"state/0/0/SSTs/7.sst": "new", "state/0/0/152.zip": "needs 7.sst"})
    return tree(folder)


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize(
    ("number", "phase", "action", "message"),
    [
        (8, Phase.PUBLISHING, publish, None),
        (8, Phase.PUBLISHING, undo, "is complete and cannot be aborted"),
        (4, Phase.PUBLISHING, publish, "the query has started batch 2"),
        (4, Phase.PUBLISHING, undo, None),
        (4, Phase.ABORTING, undo, None),
    ],
)
def test_a_query_that_has_run_since_is_not_changed(
    tmp_path: Path, number: int, phase: Phase, action: Callable[..., None], message: str | None, barrier: Any
) -> None:
    """Staged files were not removed, after a complete rescale or before its publication."""
    checkpoint, journal = staged(tmp_path, barrier=barrier)
    if phase is Phase.ABORTING:
        journal = replace(journal, phase=Phase.ABORTING)
        journal.save(checkpoint.folder)
    before = continue_query(tmp_path, number, barrier=barrier)
    with pytest.raises(StateError, match=message) if message else nullcontext():
        action(checkpoint, journal)
    assert tree(tmp_path) == before
    assert not (tmp_path / STAGING_FOLDER).exists()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "state/../../x", ""])
@pytest.mark.parametrize("field", ["files", "replaced"])
def test_a_journal_with_paths_outside_the_checkpoint_is_refused(name: str, field: str) -> None:
    """A user who may write to a checkpoint must not gain access to other files through the user of the query."""
    content = json.loads(complete(barrier=False).json_bytes)
    content[field] = [name] if field == "files" else {name: "text"}
    with pytest.raises(StateError, match="journal of a rescale"):
        Journal.parse(json.dumps(content).encode())
