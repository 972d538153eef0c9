"""Answers of the package's Java classes (``Answer.java``): facts as JSON, and JVM objects.

An answer costs one call, whatever its content, and its facts one call for each 4000 characters: a longer string would
wait 40 ms for the TCP acknowledgement of its first segment.
"""

from __future__ import annotations

import json
from typing import Any


def text(answer: Any) -> str:
    """Return the text of an answer, which is a plain string if it is short."""
    if isinstance(answer, str):
        return answer
    return "".join(answer.chunk(index) for index in range(answer.chunks()))


def facts(answer: Any) -> Any:
    """Return the facts of an answer as parsed JSON."""
    return json.loads(text(answer))
