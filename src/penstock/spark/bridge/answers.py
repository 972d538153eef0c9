"""Answers of Penstock's Java classes (``Answer.java``): *facts*, which are plain values as JSON, and JVM objects.

Facts of up to 4000 characters, without objects, are returned as a string. Longer facts are read in chunks of this size
with a call each, as py4j waits 40 ms for a longer string: TCP delays the rest until it gets an acknowledgement.
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
