"""`penstock recover`: its report, and recovery with --apply."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.commit import Access, leftovers
from penstock.commit.leftovers import find_leftovers
from penstock.commit.owner import Owner
from tests.commit.checks import run
from tests.commit.harness import Stop, in_child
from tests.commit.local import without_a_jvm
from tests.commit.targets import FILES, Files, Template

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.forks


@pytest.fixture(scope="module")
def template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return Template(spark, tmp_path_factory.mktemp("template"))


def penstock(*arguments: Any) -> Any:
    done = CliRunner().invoke(main, ["recover", "--output-format", "json", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def rows(report: Any) -> Any:
    return [row for result in report.get("results", []) for row in result["rows"]]


@pytest.mark.thorough
def test_report_and_recovery(spark: SparkSession, template: Any, tmp_path: Path) -> None:
    targets = [
        Files(template, tmp_path / name, *FILES["append by partition"][:2], exists=True, token=None) for name in "ab"
    ]
    steps = in_child(
        spark,
        lambda: counted(
            spark, [Files(template, tmp_path / "c", *FILES["append by partition"][:2], exists=True, token=None)]
        ),
    ).result
    moves = [number for number, name in enumerate(steps) if name == "move_to"]
    assert in_child(spark, lambda: run(spark, targets, Stop(moves[3]))).killed
    before = [target.rows() for target in targets]
    for path in (tmp_path / "a" / "out", tmp_path / "a", tmp_path / "b"):
        (row,) = [row for row in rows(penstock(path)) if ".penstock-commit-" in row["found"]]
        assert row["action"] == "would be undone"
        assert str(tmp_path / "a" / "out") in row["targets"]
        assert str(tmp_path / "b" / "out") in row["targets"]
    assert [target.rows() for target in targets] == before
    (done,) = [row for row in rows(penstock(tmp_path / "b" / "out", "--apply")) if ".penstock-commit-" in row["found"]]
    assert done["action"] == "undone"
    assert [target.rows() for target in targets] == [target.old for target in targets]
    for name in "ab":
        assert [path.name for path in (tmp_path / name).iterdir()] == ["out"]
    assert "nothing to recover" in penstock(tmp_path / "a")["notes"][0]


def test_journals_are_not_leftovers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    access = Access(without_a_jvm(monkeypatch, tmp_path))
    tag = Owner.current().tag
    journal = f".penstock-commit-0123456789ab-{tag}"
    staging = f".penstock-commit-0123456789ab-{tag}-old"  # of a target named "commit"
    (tmp_path / "commit").mkdir()
    (tmp_path / staging).mkdir()
    for ending in ("json", "json.lease", "claim", "claim.lease", "ref"):
        (tmp_path / f"{journal}.{ending}").write_text("{}")
    monkeypatch.setattr(leftovers, "journals_at", lambda *_: [])  # the journals are empty, so do not read them
    for path in (tmp_path, tmp_path / "commit"):
        assert [left.path.rpartition("/")[2] for left in find_leftovers(access, str(path))] == [staging]


def counted(spark: SparkSession, targets: Any) -> Any:
    stop = Stop()
    run(spark, targets, stop)
    return stop.seen


@pytest.mark.thorough
def test_leftovers_of_jobs_that_died_before_their_commit(spark: SparkSession, template: Any, tmp_path: Path) -> None:
    target = Files(template, tmp_path / "a", "overwrite", "plain", exists=True, token=None)

    assert in_child(spark, lambda: run(spark, [target], Stop(0))).killed
    (row,) = rows(penstock(target.path))
    assert row["action"] == "would be removed"
    other = tmp_path / "a" / ".penstock-out-0123456789ab-00000000-1-00000000"
    other.mkdir()
    actions = {row["found"].rpartition("/")[2]: row["action"] for row in rows(penstock(target.path, "--apply"))}
    assert actions[other.name].startswith("not touched")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [other.name, "out"]
    assert target.rows() == target.old


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_journal_of_another_user_requires_trust(spark: SparkSession, template: Any, tmp_path: Path) -> None:
    target = Files(template, tmp_path / "a", "append", "plain", exists=True, token=None)
    assert in_child(spark, lambda: run(spark, [target], Stop(3))).killed
    (journal,) = (tmp_path / "a").glob(".penstock-commit-*.json")
    unsigned = {key: value for key, value in json.loads(journal.read_text()).items() if key != "digest"}
    journal.write_text(json.dumps(unsigned))
    os.chown(journal, 65534, 65534)
    done = CliRunner().invoke(main, ["recover", "--output-format", "json", str(tmp_path / "a"), "--apply"])
    assert done.exit_code != 0
    assert "another user" in done.output
    assert journal.exists()
    (row,) = [row for row in rows(penstock(journal, "--trust")) if row["found"].endswith(".json")]
    assert row["action"] == "would be undone"
    assert str(target.path) in row["targets"]
    penstock(journal, "--trust", "--apply")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["out"]
    assert target.rows() == target.old


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_hidden_folders_of_other_users_are_not_removed(spark: SparkSession, tmp_path: Path) -> None:
    dead = Owner.current().tag.replace(str(os.getpid()), "4194300")
    folders = [tmp_path / f".penstock-out-{number}123456789ab-{dead}" for number in range(3)]
    for folder in folders[:2]:
        folder.mkdir()
    os.chown(folders[1], 65534, 65534)
    folders[2].symlink_to(tmp_path)
    penstock(tmp_path, "--apply")
    assert [os.path.lexists(folder) for folder in folders] == [False, True, True]
