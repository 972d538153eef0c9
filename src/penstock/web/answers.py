"""A cache of encoded responses, which all clients share."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from fastapi.responses import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.history.record import JobRecord

_CAPACITY = 64


class AnswerCache:
    """Encoded responses by job id and topic."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str], tuple[tuple[int, int], bytes]] = OrderedDict()

    def get(
        self, record: JobRecord, topic: str, compute: Callable[[], Any], media_type: str = "application/json"
    ) -> Response:
        """Return a response about a job, recomputed only if the job has changed.

        Durations of a running job grow without events, so a response about a running job expires after a second.
        """
        return self._get(record.id, topic, (record.version, record.is_ended), compute, media_type)

    def get_for_all_jobs(self, topic: str, version: int, compute: Callable[[], Any]) -> Response:
        """Return a response about all jobs, some of which may be running."""
        return self._get("", topic, (version, False), compute, "application/json")

    def _get(
        self, job: str, topic: str, state: tuple[int, bool], compute: Callable[[], Any], media_type: str
    ) -> Response:
        version, is_final = state
        stamp = (version, 0 if is_final else int(time.monotonic()))
        entry = self._entries.get((job, topic))
        if entry is None or entry[0] != stamp:
            content = compute()
            entry = (stamp, content.encode() if isinstance(content, str) else json.dumps(content, default=str).encode())
            self._entries[job, topic] = entry
            while len(self._entries) > _CAPACITY:
                self._entries.popitem(last=False)
        return Response(entry[1], media_type=media_type)
