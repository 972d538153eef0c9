"""The commands on event logs, which need no Spark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.history.event_log import EventLog, LocalFolder
from penstock.web.server import WebServer
from tests.history.records import ID, events


def folder_with_a_job(tmp_path: Path) -> str:
    EventLog(LocalFolder(tmp_path).create(f"20261122T120000-{ID}.jsonl")).write(events())
    return str(tmp_path)


def invoke(*arguments: Any) -> Any:
    done = CliRunner().invoke(main, ["history", *arguments])
    return done.exit_code, done.output


def test_list_and_show(tmp_path: Path) -> None:
    folder = folder_with_a_job(tmp_path)
    code, output = invoke("list", "--history", folder)
    assert code == 0
    assert ID in output
    assert "finished" in output
    code, output = invoke("show", "--history", folder, ID)
    assert code == 0
    assert "as measured" in output
    assert "HASH" not in output
    shown = json.loads(invoke("show", "--history", folder, ID, "--output-format", "json")[1])["job"]
    assert (shown["jid"], len(shown["vertices"]), len(shown["changes"])) == (ID, 2, 1)


def test_unambiguous_prefix_of_an_id(tmp_path: Path) -> None:
    folder = folder_with_a_job(tmp_path)
    for prefix in (ID[:1], ID[:5].upper(), ID):
        shown = json.loads(invoke("show", "--history", folder, prefix, "--output-format", "json")[1])["job"]
        assert shown["jid"] == ID
    assert invoke("show", "--history", folder, ID + "0")[0] == 1
    other = ID[:5] + "0" * 7
    EventLog(LocalFolder(tmp_path).create(f"20261122T120001-{other}.jsonl")).write(events())
    code, output = invoke("show", "--history", folder, ID[:5])
    assert code == 1
    assert "2 jobs have an id that begins with" in output
    assert ID in output
    assert other in output


def test_all_jobs_are_listed(tmp_path: Path) -> None:
    for number in range(30):
        EventLog(LocalFolder(tmp_path).create(f"20261122T1200{number:02}-{number:012x}.jsonl")).write(events())
    assert invoke("list", "--history", str(tmp_path))[1].count("finished") == 30


def test_missing_job_and_folder(tmp_path: Path) -> None:
    code, output = invoke("show", "--history", folder_with_a_job(tmp_path), "ffffffffffff")
    assert code == 1
    assert "there is no job 'ffffffffffff'" in output
    assert invoke("list", "--history", str(tmp_path / "nowhere"))[0] == 1


def test_ui_with_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WebServer, "run", lambda server: server.stop())
    folder = folder_with_a_job(tmp_path)
    for setting, shown in (("rest.token=mine", "?token=mine"), ("rest.bind-address=127.0.0.2", "http://127.0.0.2:")):
        settings = ["--conf", f"spark.penstock.{setting}", "--conf", "spark.penstock.rest.port=0"]
        done = CliRunner().invoke(main, ["ui", "--history", folder, *settings])
        assert (done.exit_code, shown in done.output) == (0, True), done.output


def test_ui_over_a_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "ui", "--history", folder_with_a_job(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())[0]
            with urllib.request.urlopen(f"{address}jobs/{ID}") as answer:
                assert json.load(answer)["state"] == "FINISHED"
            with urllib.request.urlopen(f"{address}ui/jobs/{ID}") as answer:
                assert b"vertex 1" in answer.read()
        finally:
            server.kill()


def test_clean(tmp_path: Path) -> None:
    folder = folder_with_a_job(tmp_path)
    assert invoke("clean", "--history", folder)[0] == 2  # without a limit
    code, output = invoke("clean", "--history", folder, "--older-than", "1 d")
    assert (code, "0 logs were removed" in output) == (0, True)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    code, output = invoke("clean", "--history", folder, "--larger-than", "1 b", "--dry-run", "--output-format", "json")
    assert code == 0
    (result,) = json.loads(output)["results"]
    assert result["rows"] == [{"log": f"20261122T120000-{ID}.jsonl", "bytes": size}]
    assert len(list(tmp_path.iterdir())) == 1
    code, output = invoke("clean", "--history", folder, "--larger-than", "1 b")
    assert (code, "1 log was removed" in output) == (0, True)
    assert list(tmp_path.iterdir()) == []
    code, output = invoke("clean", "--history", folder, "--older-than", "soon")
    assert code == 1
    assert "historyserver.archive.retained-ttl" in output
