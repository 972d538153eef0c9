"""Answers of the package's Java classes (``java/Answer.java``): facts, and objects of the JVM that they are about.

One question costs one call, however much is asked, and its facts one call for each 4000 characters: a longer text in
one piece would wait 40 ms for the acknowledgement of its first part.
"""

from __future__ import annotations

import json
from typing import Any


def text(answer: Any) -> str:
    """Return the text of an answer; a short one is the answer itself."""
    if isinstance(answer, str):
        return answer
    return "".join(answer.piece(place) for place in range(answer.pieces()))


def facts(answer: Any) -> Any:
    """Return the facts of an answer, as JSON has them; whoever asked makes a typed value of them."""
    return json.loads(text(answer))
