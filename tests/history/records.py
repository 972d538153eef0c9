"""Events of an artificial job, for tests without Spark."""

from __future__ import annotations

import os
import socket
from typing import Any

from penstock.history.record import JobRecord

ID = "0123456789ab"


def node(number: Any, name: Any, **more: Any) -> Any:
    return {
        "id": str(number),
        "kind": "Calc",
        "name": name,
        "description": f"all of {name}",
        "parallelism": -1,
        "max_parallelism": -1,
        "location": "",
        **more,
    }


def edge(source: Any, target: Any, partitioner: str = "HASH(k)", exchange: str = "BLOCKING") -> dict[str, Any]:
    return {
        "id": f"{source}-{target}",
        "source": str(source),
        "target": str(target),
        "input": 1,
        "partitioner": partitioner,
        "exchange": exchange,
    }


def vertex(number: Any, nodes: Any, state: Any, inputs: Any = (), **more: Any) -> Any:
    return {
        "type": "vertex",
        "at": 11.0,
        "id": f"v{number}",
        "name": f"vertex {number}",
        "nodes": [str(n) for n in nodes],
        "max_parallelism": -1,
        "inputs": [{"vertex": v, "edge": e} for v, e in inputs],
        "state": state,
        "parallelism": 3,
        "reason": "as measured",
        "tasks": 3,
        "bytes_in": 1000,
        "bytes_out": 500,
        "rows_out": 50,
        "timestamps": {"CREATED": 10.0, "RUNNING": 11.0, "FINISHED": 12.5},
        "subpartitions": [10, 20, 400],
        "subpartition_count": 3,
        **more,
    }


def task(index: Any, seconds: Any) -> dict[str, Any]:
    return {
        "stage": 1,
        "index": index,
        "state": "SUCCESS",
        "host": "h",
        "started": 11.0,
        "seconds": seconds,
        "bytes_in": 10,
        "bytes_out": 5,
        "rows_in": 2,
        "rows_out": 1,
    }


def events(name: str = "a <b>job</b>", job_id: Any = ID, pid: Any = None, ended: bool = True) -> Any:
    """Return the events of a finished source, and of a join and a sink that are pending unless the job has ended."""
    lines = [
        {
            "type": "job",
            "at": 10.0,
            "id": job_id,
            "name": name,
            "started": 10.0,
            "host": socket.gethostname(),
            "pid": os.getpid() if pid is None else pid,
            "spark": "4.3.0",
            "config": {"scan.parallelism": {"value": "3", "origin": "file x.toml"}},
        },
        {"type": "nodes", "at": 10.0, "nodes": [node(1, "read <orders>"), node(2, "join"), node(3, "sink")]},
        {"type": "edges", "at": 10.0, "edges": [edge(1, 2), edge(2, 3, "FORWARD", "PIPELINED")]},
        {"type": "state", "at": 10.0, "state": "RUNNING", "pending": 2, "counts": {}},
        vertex(1, [1], "FINISHED"),
        {"type": "tasks", "at": 12.5, "vertex": "v1", "tasks": [task(0, 0.1), task(1, 0.1), task(2, 1.2)]},
        {
            "type": "decision",
            "index": 0,
            "at": 11.0,
            "kind": "vertex parallelism",
            "subject": "v1 vertex 1",
            "chosen": 3,
            "reason": "1000 bytes",
            "figures": {"bytes in": 1000},
            "outcome": {},
        },
    ]
    if ended:
        lines += [
            {
                "type": "change",
                "at": 12.6,
                "what": "edge from read to join",
                "before": "HASH(k)",
                "after": "BROADCAST",
                "sentence": "it is small",
                "node": "2",
            },
            vertex(2, [2, 3], "FINISHED", [("v1", "1-2")]),
            {
                "type": "decision",
                "index": 0,
                "at": 11.0,
                "kind": "vertex parallelism",
                "subject": "v1 vertex 1",
                "chosen": 3,
                "reason": "1000 bytes",
                "figures": {"bytes in": 1000},
                "outcome": {"tasks": 3},
            },
            {
                "type": "state",
                "at": 20.0,
                "state": "FINISHED",
                "pending": 0,
                "counts": {"FINISHED": 2, "pending-operators": 0},
            },
        ]
    return lines


def loaded(tasks: Any, stages: Any) -> Any:
    """Return the records of tasks and stages."""
    job = JobRecord()
    job.apply({"type": "tasks", "at": 1.0, "vertex": "v1", "tasks": tasks, "stages": stages})
    return job.tasks["v1"], job.stages["v1"]


def record(**options: Any) -> JobRecord:
    job = JobRecord()
    for event in events(**options):
        job.apply(event)
    return job
