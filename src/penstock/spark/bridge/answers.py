"""Answers of Penstock's Java classes (``Answer.java``): *facts*, which are plain values as JSON, and JVM objects.

Short facts without objects are returned as a string. Each 4000 characters of a longer answer cost another call: py4j
would wait 40 ms for the TCP acknowledgement of the first segment of a longer string.
"""

from __future__ import annotations

import json
from typing import Any


def text(answer: Any) -> str:
    """Return the text of an answer: a string, or an ``Answer`` with chunks of text."""
    if isinstance(answer, str):
        return answer
    return "".join(answer.chunk(index) for index in range(answer.chunks()))


def facts(answer: Any) -> Any:
    """Return the facts of an answer as parsed JSON."""
    return json.loads(text(answer))
