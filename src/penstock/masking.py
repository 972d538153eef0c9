"""Secrets in options, URLs and messages, made unreadable wherever they would be shown or kept."""

from __future__ import annotations

import re

MASK = "******"
_TELLING = (
    r"password|passwd|passphrase|pwd|secret|token|credential|authorization|cipher|connection[._-]?string|key[._-]pem"
    r"|sessionid"
    r"|(?:access|account|api|shared|sas|service[._-]account)[._-]?key"
)
_SECRET_KEY = re.compile(rf"{_TELLING}|private|(?:^|[._-])sas(?:[._-]|$)", re.IGNORECASE)
_PLAIN_KEY = re.compile(
    "(?:"
    "access[._-]delegation|acks|addressing|algorithm|anonymous|arn|attempts|audience|behavior|bucket|bytes|ca"
    "|catalog|charset|codec|collation|commit|compression|count|database|dir|driver|enabled|encoding|endpoint|exists"
    "|factor|file|format|host|hosts|http|id|idempotence|impl|inserts|interval|isolation|keytab|level|limit|locale"
    "|location|max|mechanism|mechanisms|method|min|mode|ms|name|names|namespace|options|partitioner|partitions|path"
    "|port|prefix|principal|profile|project|protocol|provider|put|region|rename|request|resource|retries|retrieval"
    "|role|root|schema|scope|seconds|server|servers|size|ssl|statements|style|table|tenant|threshold|timeout|type|types"
    "|uri|url|user|version|warehouse|zone"
    ")$",
    re.IGNORECASE,
)
"""How the names of properties end that hold no secret, in the words of the clients that are known."""
_FLAGS = {"", "true", "false"}
_USER_INFO = re.compile(r"(?<=://)([^\s/@:]+):([^\s/?#]+)(?=@)")
_ASSIGNED = re.compile(
    rf"(?<![\w.-])(?=[\w.-]*?(?:{_TELLING}))(?P<key>[\w.-]+)(?P<between>[\"']?\s*[=:]\s*)"
    r"(?:(?P<quote>[\"'])(?:\\.|(?!(?P=quote))[^\\\n])+(?P=quote)"
    r"|(?P<open>[\"']?)(?:(?:bearer|basic)\s+)?[^\s&;,\"'<>)}]+)",
    re.IGNORECASE,
)
"""A word and a value behind it, which ends with its quote if it begins with one."""
_LITERAL = re.compile(r"'(?:\\.|''|[^'\\])*(?:'|$)|\"(?:\\.|\"\"|[^\"\\])*(?:\"|$)", re.DOTALL)
"""A text in SQL; one that was cut off has no end."""
_SECRET_WORD = rf"(?=[\w.-]*?(?:{_TELLING}))[\w.-]+"
_NAMED = re.compile(
    rf"(?P<name>(?:(?<=[\"'`]){_SECRET_WORD}[\"'`]|(?<![\"'`\w.-]){_SECRET_WORD})"
    rf"\s*+(?:[=:,<>!]{{1,3}}|like\b|in\s*+\()?+\s*+)(?:{_LITERAL.pattern})",
    re.IGNORECASE | re.DOTALL,
)
"""The same in SQL, where a blank or a comma may be all that is between them."""
_TAKES_KEY = re.compile(r"\b(?:try_)?aes_(?:en|de)crypt\b", re.IGNORECASE)
_LETTERS = ("-----BEGIN", "{")
"""How keys and accounts begin that are written out."""


def mask_value(key: str, value: object) -> str:
    """Return an option's value, or the mask where its key tells that it is a secret."""
    return MASK if is_secret(key) else mask(str(value))


def is_secret(key: str) -> bool:
    """Whether the name of an option tells that its value is a secret."""
    return _SECRET_KEY.search(key) is not None


def may_be_kept(key: str, value: str) -> bool:
    """Whether a property of a client may be kept in a file: one whose name is not known may be a secret."""
    if is_secret(key) or value.lstrip().startswith(_LETTERS) or mask(value) != value:
        return False
    return _PLAIN_KEY.search(key) is not None or value.lower() in _FLAGS


def mask(text: str) -> str:
    """Return a text without the passwords in its URLs and assignments."""
    text = _USER_INFO.sub(rf"\1:{MASK}", text)
    return _ASSIGNED.sub(_masked, text)


def mask_sql(text: str) -> str:
    """Return an SQL text without the passwords in it, where between name and value may be but a blank or a comma.

    If it calls a function that takes a key, no text in quotes is shown.
    """
    if _TAKES_KEY.search(text):
        return mask(_LITERAL.sub(f"'{MASK}'", text))
    return mask(_NAMED.sub(rf"\g<name>'{MASK}'", text))


def _masked(found: re.Match[str]) -> str:
    quote = found["quote"] or ""
    return f"{found['key']}{found['between']}{quote or found['open']}{MASK}{quote}"
