"""Secrets in options, URLs and messages, made unreadable wherever they would be shown or kept."""

from __future__ import annotations

import re

MASK = "******"
_SECRET_KEY = re.compile(r"password|passwd|secret|token|credential|private|access[._-]?key|api[._-]?key", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)([^\s/@:]+):([^\s/@]+)(?=@)")
_ASSIGNED = re.compile(
    r"(?P<key>[\w.-]*(?:password|passwd|pwd|secret|token|credential|api[_-]?key|access[_-]?key)[\w.-]*)"
    r"(?P<between>[\"']?\s*[=:]\s*[\"']?)(?P<value>[^\s&;,\"'<>)}]+)",
    re.IGNORECASE,
)


def mask_value(key: str, value: object) -> str:
    """Return an option's value, or the mask where its key tells that it is a secret."""
    return MASK if _SECRET_KEY.search(key) else mask(str(value))


def mask(text: str) -> str:
    """Return a text without the passwords in its URLs and assignments."""
    text = _USER_INFO.sub(rf"\1:{MASK}", text)
    return _ASSIGNED.sub(rf"\g<key>\g<between>{MASK}", text)
