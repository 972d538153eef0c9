"""The REST API: its fields, access control, and invalid requests."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from fastapi.testclient import TestClient
from schemathesis.specs.openapi.checks import allow_header_conformance, unsupported_method

from penstock.config import Configuration
from penstock.errors import WebError
from penstock.history.event_log import EventLog, LocalFolder
from penstock.history.logs import History
from penstock.web.access import cookie_name
from penstock.web.api import create_app
from penstock.web.server import WebServer
from penstock.web.store import JobStore
from tests.history.records import ID, edge, events, node, record

TOKEN = "a token"


class Client(TestClient):
    """A client that sends requests to the loopback address."""

    def __init__(self, app: Any) -> None:
        super().__init__(app, base_url="http://127.0.0.1")


def served(job: Any = None, cancelled: Any = None, **options: Any) -> Any:
    store = JobStore()
    store.add(job or record(), (cancelled if cancelled is not None else []).append)
    return create_app(store, TOKEN, slots=2, spark="4.3.0", **options)


@pytest.fixture
def client() -> Any:
    return Client(served())


def test_a_job_that_is_half_done() -> None:
    answer = Client(served(record(ended=False))).get(f"/jobs/{ID}").json()
    assert answer["pending-operators"] == answer["status-counts"]["pending-operators"] == 2
    graph = answer["stream-graph-plan"]
    assert {"jid": graph["jid"], "name": graph["name"], "type": graph["type"]} == {
        "jid": ID,
        "name": "a <b>job</b>",
        "type": "BATCH",
    }
    source, join, _ = graph["nodes"]
    assert source == {
        "id": "1",
        "parallelism": 3,
        "maxParallelism": -1,
        "operator-name": "read <orders>",
        "operator-description": "all of read <orders>",
        "jobvertex-id": "v1",
        "input-edges": [],
    }
    assert join["parallelism"] == -1
    assert "jobvertex-id" not in join
    assert join["input-edges"] == [
        {"type-num": "0", "partitioner": "HASH", "exchange": "blocking", "source-id": "1", "target-id": "2"}
    ]


def test_a_join_numbers_its_inputs() -> None:
    job = record(ended=False)
    job.apply({"type": "nodes", "at": 10.0, "nodes": [node(4, "read users")]})
    job.apply({"type": "edges", "at": 10.0, "edges": [edge(4, 2) | {"input": 2}]})
    answer = Client(served(job)).get(f"/jobs/{ID}").json()
    assert [edge["type-num"] for edge in answer["stream-graph-plan"]["nodes"][1]["input-edges"]] == ["1", "2"]
    assert [edge["num"] for edge in answer["stream-graph"]["nodes"][1]["inputs"]] == [0, 1]


def test_stream_graph_in_the_format_of_flink_releases() -> None:
    graph = Client(served(record(ended=False))).get(f"/jobs/{ID}").json()["stream-graph"]
    assert graph.keys() == {"nodes"}
    source, join, _ = graph["nodes"]
    assert source == {
        "id": "1",
        "parallelism": 3,
        "operator": "read <orders>",
        "description": "all of read <orders>",
        "job_vertex_id": "v1",
        "inputs": [],
    }
    assert (join["parallelism"], join["job_vertex_id"]) == (-1, None)
    assert join["inputs"] == [{"num": 0, "id": "1", "ship_strategy": "HASH", "exchange": "BLOCKING"}]


def test_an_ended_job(client: Any) -> None:
    answer = client.get(f"/jobs/{ID}").json()
    assert (answer["state"], answer["duration"], answer["pending-operators"]) == ("FINISHED", 10_000, 0)
    assert all("jobvertex-id" in node for node in answer["stream-graph-plan"]["nodes"])
    assert all(node["job_vertex_id"] for node in answer["stream-graph"]["nodes"])
    assert [v["status"] for v in answer["vertices"]] == ["FINISHED", "FINISHED"]
    assert answer["plan"]["nodes"][1]["inputs"] == [
        {"num": 0, "id": "v1", "ship_strategy": "HASH(k)", "exchange": "BLOCKING"}
    ]


def test_other_responses(client: Any) -> None:
    (job,) = client.get("/jobs/overview").json()["jobs"]
    assert (job["jid"], job["start-time"], job["end-time"], job["tasks"]["finished"]) == (ID, 10_000, 20_000, 2)
    assert client.get("/overview").json()["jobs-finished"] == 1
    assert client.get("/config").json()["features"] == {"web-cancel": True}
    assert client.get(f"/jobs/{ID}/config").json()["execution-config"]["user-config"] == {"scan.parallelism": "3"}
    assert client.get(f"/jobs/{ID}/exceptions").json()["root-exception"] is None
    decisions = client.get(f"/jobs/{ID}/decisions").json()
    assert decisions["decisions"][0]["outcome"] == {"tasks": 3}
    assert decisions["changes"][0]["after"] == "BROADCAST"
    vertex = client.get(f"/jobs/{ID}/vertices/v1").json()
    assert vertex["subpartitions"] == {"count": 3, "bytes": [10, 20, 400]}
    assert [task["duration"] for task in vertex["subtasks"]] == [100, 100, 1200]
    times = client.get(f"/jobs/{ID}/vertices/v1/subtasktimes").json()
    assert times["subtasks"][2]["timestamps"] == {"RUNNING": 11_000, "FINISHED": 12_200}


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/ffffffffffff",
        "/jobs/ffffffffffff/plan",
        f"/jobs/{ID}/vertices/v99",
        f"/jobs/{ID}/vertices/v99/subtasktimes",
        "/ui/jobs/ffffffffffff",
        f"/ui/jobs/{ID}/vertices/v99",
        "/static/nothing",
        "/nowhere",
    ],
)
def test_missing_resources(client: Any, path: str) -> None:
    assert client.get(path).status_code == 404


BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/ui/jobs/ffffffffffff", 404, "There is no job ffffffffffff."),
        ("/ui/jobs/nope", 404, "The id of a job has 12 characters"),
        (f"/ui/jobs/{ID}/vertices/v99", 404, f"Job {ID} has no vertex v99."),
        (f"/ui/jobs/{ID}/compare/ffffffffffff", 404, "There is no job ffffffffffff."),
        (f"/ui/jobs/{ID}/compare/nope", 404, "The id of a job has 12 characters"),
        ("/nowhere", 404, "Not Found."),
        ("/?token=wrong", 401, "The token is wrong."),
        ("/ui/jobs/<script>alert(1)", 404, "&lt;script&gt;alert(1)"),
    ],
)
def test_errors_are_pages_for_browsers_and_json_for_other_clients(
    client: Any, path: str, status: int, message: str
) -> None:
    page = client.get(path, headers=BROWSER)
    assert page.status_code == status
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert message in page.text
    assert '<a class="button" href="/">Show all jobs</a>' in page.text
    assert "<script>alert" not in page.text
    for rule in ("script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert rule in page.headers["Content-Security-Policy"]
    assert client.get(path).json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/?q=none&state=failed&sort=-took&page=3",
        "/ui/dashboard",
        "/ui/streams",
        f"/ui/jobs/{ID}",
        f"/ui/jobs/{ID}?pending=true&sort=-took&kind=x",
        f"/ui/jobs/{ID}/vertices/v1",
        f"/ui/jobs/{ID}/compare/{ID}",
    ],
)
def test_pages_respond(client: Any, path: str) -> None:
    assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/..%2f..%2fetc%2fpasswd",
        "/jobs/%00",
        "/jobs/x",
        f"/jobs/{ID}/vertices/../../x",
        "/static/..%2fserver.py",
        f"/jobs/{ID}/vertices/v-1",
        "/jobs/" + "9" * 5000,
        "/ui/jobs/<script>",
    ],
)
def test_malicious_paths(client: Any, path: Any) -> None:
    assert 400 <= client.get(path).status_code < 500


def test_cancelling_requires_the_token() -> None:
    cancelled: list[Any] = []
    client = Client(served(record(ended=False), cancelled))
    assert client.patch(f"/jobs/{ID}").status_code == 401
    assert client.patch(f"/jobs/{ID}", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert cancelled == []
    assert client.patch(f"/jobs/{ID}", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 202
    assert cancelled == ["cancelled through the API"]


def test_an_ended_job_cannot_be_cancelled(client: Any) -> None:
    assert client.patch(f"/jobs/{ID}", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 409


def test_public_address_requires_the_token_for_all_paths() -> None:
    client = TestClient(served(address="192.0.2.1"))
    for path in ("/config", "/jobs/overview", f"/jobs/{ID}", "/", f"/ui/jobs/{ID}", "/events", "/openapi.json"):
        assert client.get(path).status_code == 401, path
    assert client.get("/config", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/", params={"token": "wrong"}).status_code == 401
    assert client.get("/", params={"token": TOKEN}).status_code == 200
    assert client.get(f"/ui/jobs/{ID}").status_code == 200, "the token is stored in a cookie"


def test_api_description(client: Any) -> None:
    assert "/jobs/{job_id}" in client.get("/openapi.json").json()["paths"]


RIGHT = {"header": {"Authorization": f"Bearer {TOKEN}"}, "cookie": TOKEN, "address": TOKEN}
WRONG = {"header": {"Authorization": "Bearer wrong"}, "cookie": "wrong", "address": "wrong"}


@pytest.mark.parametrize("right", [None, *RIGHT])
def test_any_valid_token_is_sufficient(right: str | None) -> None:
    tokens: dict[str, Any] = WRONG if right is None else WRONG | {right: RIGHT[right]}
    client = TestClient(served(address="192.0.2.1"), cookies={cookie_name(TOKEN): tokens["cookie"]})
    answer = client.get("/config", params={"token": tokens["address"]}, headers=tokens["header"])
    assert answer.status_code == (401 if right is None else 200)


def test_servers_of_a_host_have_separate_cookies() -> None:
    """A browser sends the cookies of a host to all of its ports."""
    client = Client(served(record(ended=False)))
    client.cookies = {cookie_name("the token of another"): "the token of another"}
    assert 'id="cancel"' not in client.get(f"/ui/jobs/{ID}").text
    client.get("/", params={"token": TOKEN})
    assert 'id="cancel"' in client.get(f"/ui/jobs/{ID}").text
    assert client.patch(f"/jobs/{ID}").status_code == 202
    assert len(set(client.cookies)) == 2
    assert TOKEN not in cookie_name(TOKEN)


def test_foreign_host_names_are_rejected(client: Any) -> None:
    assert client.get("/jobs/overview", headers={"Host": "evil.example"}).status_code == 400


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.5", "localhost", "::1", "0:0:0:0:0:0:0:1"])
def test_server_responds_only_to_its_own_address(address: str) -> None:
    if ":" in address and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    server = WebServer(JobStore(), Configuration.load({"rest.bind-address": address, "rest.port": 0}))
    server.start()
    try:
        for host, status in ((None, 200), ("127.0.0.1", 200), ("127.0.0.6", 400), ("evil.example", 400)):
            headers = {} if host is None else {"Host": f"{host}:{server.port}"}
            answer = httpx.get(f"{server.url}jobs/overview", headers=headers, trust_env=False)
            assert answer.status_code == status, host
    finally:
        server.stop()


def test_a_port_in_use_is_an_error_unless_it_is_the_default(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WebError, match=rf"cannot listen on 127\.0\.0\.1:{port}\n.*already in use"):
            WebServer(JobStore(), Configuration.load({"rest.port": port}))
        monkeypatch.setattr(Configuration, "integer", lambda *_: port)
        assert WebServer(JobStore(), Configuration()).port != port
    assert caplog.messages == [f"port {port} is in use, so the web page has another port"]


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_security_headers(client: Any) -> None:
    headers = client.get(f"/ui/jobs/{ID}").headers
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_events_of_a_job_end_with_it(client: Any) -> None:
    text = client.get(f"/jobs/{ID}/events").text
    assert text.startswith("event: changed\ndata: ")
    assert text.endswith("event: ended\ndata: 0\n\n")


def test_jobs_from_event_logs(tmp_path: Path) -> None:
    log = EventLog(LocalFolder(tmp_path).create(f"20261122T120000-{ID}.jsonl"))
    log.write(events())
    client = Client(create_app(JobStore(History(LocalFolder(tmp_path))), TOKEN))
    assert client.get(f"/jobs/{ID}").json()["state"] == "FINISHED"
    assert [job["jid"] for job in client.get("/jobs/overview").json()["jobs"]] == [ID]
    assert client.patch(f"/jobs/{ID}", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 409


schema = schemathesis.openapi.from_asgi(
    "/openapi.json", served(address="192.0.2.1"), headers={"Authorization": f"Bearer {TOKEN}"}
)


@pytest.mark.sample(4)
@schema.exclude(path_regex="/events$").parametrize()
def test_responses_match_the_description(case: Any) -> None:
    # The framework answers requests with unsupported methods.
    case.call_and_validate(
        headers={"Authorization": f"Bearer {TOKEN}"}, excluded_checks=[unsupported_method, allow_header_conformance]
    )
