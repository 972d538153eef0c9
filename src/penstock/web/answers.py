"""The latest answers as bytes: many readers of one job cost no more than one."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from fastapi.responses import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.history.record import JobRecord

_KEPT = 64


class Answers:
    """Answers by job and by what they show."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[tuple[int, int], bytes]] = OrderedDict()

    def get(
        self, record: JobRecord, what: str, make: Callable[[], Any], media_type: str = "application/json"
    ) -> Response:
        """Return an answer, made anew only if the job has changed.

        Durations of a running job grow without events, so an answer about one is good for a second.
        """
        return self._get(record.id, what, (record.version, record.is_ended), make, media_type)

    def get_of_all(self, what: str, version: int, make: Callable[[], Any]) -> Response:
        """Return an answer about all jobs, some of which may be running."""
        return self._get("", what, (version, False), make, "application/json")

    def _get(self, job: str, what: str, state: tuple[int, bool], make: Callable[[], Any], media_type: str) -> Response:
        version, is_final = state
        stamp = (version, 0 if is_final else int(time.monotonic()))
        kept = self._kept.get((job, what))
        if kept is None or kept[0] != stamp:
            made = make()
            kept = (stamp, made.encode() if isinstance(made, str) else json.dumps(made, default=str).encode())
            self._kept[job, what] = kept
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return Response(kept[1], media_type=media_type)
