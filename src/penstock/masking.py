"""Secrets in options, URLs and messages, made unreadable wherever they would be shown or kept."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MASK = "******"
_TELLING = (
    r"password|passwd|passphrase|passcode|pwd|secret|token|credential|authorization|cookie|cipher|signature"
    r"|connection[._-]?string|key[._-]pem|sessionid"
    r"|(?:access|account|api|shared|sas|private|encryption|signing|service[._-]account)[._-]?key"
)
_LAST_WORD = r"(?:(?<![a-z0-9])(?:sas|sig|pw|jwt)|(?<!by)(?<!com)pass)(?![\w.-])"
"""Short names of secrets, which mean that only at the end of a name: not in ``pass_id``."""
_SECRET_KEY = re.compile(rf"{_TELLING}|{_LAST_WORD}|private|(?:^|[._-])sas(?:[._-]|$)", re.IGNORECASE)
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
_LOGIN = re.compile(
    r"(?<=://)(?P<user>[^\s/@:]*):(?:[^\s/?#]+|(?!\d+[/?#])[^\s@?#\"'<>]{1,256})(?=@)"
    r"|(?<=\boracle:)(?P<oracle>\w+:[^\s/@:]*)/[^\s]{1,256}(?=@)",
    re.IGNORECASE,
)
"""The user and the password of a URL. A password may have a slash, as secret keys of S3 do; a port has only digits."""
_LONG_USER = re.compile(r"(?<=://)[\w.~%+-]{20,}(?=@[\w.-]+(?:[:/]|$))")
"""A token in the position of the user, as for repositories of source code."""
_SECRET_NAME = rf"(?=[\w.-]*?(?:{_TELLING}|{_LAST_WORD}))[\w.-]+"
_ASSIGNED = re.compile(
    rf"(?<![\w.-])(?P<key>{_SECRET_NAME})(?P<between>\\*[\"']?\s*(?:->|[=:]|%3[ad])\s*|[\"']\s*,\s*(?=[\"']))"
    r"(?:(?P<quote>\\*[\"'])(?:(?!(?P=quote))(?:\\.|[^\\\n]))+(?P=quote)"
    r"|\{(?:[^{}\n]|\}\}){1,1000}\}"
    r"|(?P<open>\\*[\"']?)(?:(?:bearer|basic)\s+)?[^\s&;,\"'<>)}]+"
    r"(?:[&;]+(?![\w.-]+(?: [\w.-]+)*\s*=)[^\s&;,\"'<>)}]+)*)",
    re.IGNORECASE,
)
"""A word and a value behind it, which ends with its quote or brace if it begins with one, else before the next word."""
_FLAG = re.compile(rf"(?<![\w.-])(?P<flag>--?{_SECRET_NAME}\s+)(?!-)[^\s\"']+", re.IGNORECASE)
"""An option of a command line with its value."""
_HEADER = re.compile(
    r"(?<![\w-])(?P<header>(?:set-cookie2?|cookie|(?:proxy-)?authorization)\s*:\s*)[^\s\"'][^\r\n]*", re.IGNORECASE
)
"""A header of a request, whose value may have blanks and several parts."""
_BARE = re.compile(
    r"(?<![\w.-])eyJ[\w-]{8,}\.[\w-]+\.[\w-]*|(?<=\bbearer )[\w.~+/=-]{16,}"
    r"|(?<=PRIVATE KEY-----)(?:(?!-----)[\s\S]){1,20000}",
    re.IGNORECASE,
)
"""Secrets that are known by their form: web tokens, and keys in PEM."""
_LITERAL = re.compile(r"'(?:\\.|''|[^'\\])*(?:'|$)|\"(?:\\.|\"\"|[^\"\\])*(?:\"|$)", re.DOTALL)
"""A text in SQL; one that was cut off has no end."""
_NAMED = re.compile(
    rf"(?P<name>(?:(?<=[\"'`]){_SECRET_NAME}[\"'`]|(?<![\"'`\w.-]){_SECRET_NAME})"
    rf"\s*+(?:[=:,<>!]{{1,3}}|like\b|in\s*+\()?+\s*+)(?:{_LITERAL.pattern})",
    re.IGNORECASE | re.DOTALL,
)
"""The same in SQL, where a blank or a comma may be all that is between them."""
_TAKES_KEY = re.compile(r"\b(?:try_)?aes_?(?:en|de)crypt\b", re.IGNORECASE)
_BYTES = re.compile(r"\b0x[0-9a-f]+", re.IGNORECASE)
_MAKES_BYTES = re.compile(r"\b(?:cast|unhex|unbase64|encode|to_binary)\(", re.IGNORECASE)
"""How the plan of a call of such a function shows a key: its bytes, or of what they are made."""
_LONGEST = 2000
"""Characters of an argument that are looked at, so that deep plans take no time."""
_OF_COLUMNS = re.compile(r"(?:\w+#\d+L?| as \w+|\w+\(|\)|,|utf-\d+\w*|us-ascii|iso-8859-1|\s)*", re.IGNORECASE)
"""What is made of columns alone."""
_LETTERS = ("-----BEGIN", "{")
"""How keys and accounts begin that are written out."""


def mask_value(key: str, value: object) -> str:
    """Return an option's value, or the mask where its key tells that it is a secret."""
    return MASK if is_secret(key) else mask(str(value))


def repr_without_secrets(instance: DataclassInstance) -> str:
    """Return what a dataclass shows of an instance, without secrets; to be its ``__repr__``."""
    shown = (f"{one.name}={mask(repr(getattr(instance, one.name)))}" for one in fields(instance) if one.repr)
    return f"{type(instance).__qualname__}({', '.join(shown)})"


def is_secret(key: str) -> bool:
    """Whether the name of an option tells that its value is a secret."""
    return _SECRET_KEY.search(key) is not None


def may_be_kept(key: str, value: str) -> bool:
    """Whether a property of a client may be kept in a file: one whose name is not known may be a secret."""
    if is_secret(key) or value.lstrip().startswith(_LETTERS) or mask(value) != value:
        return False
    return _PLAIN_KEY.search(key) is not None or value.lower() in _FLAGS


def mask(text: str) -> str:
    """Return a text without the passwords in its URLs, assignments, headers, command lines and calls in plans."""
    if _TAKES_KEY.search(text):
        text = _without_keys(text)
    text = _HEADER.sub(rf"\g<header>{MASK}", mask_logins(text))
    text = _BARE.sub(MASK, _ASSIGNED.sub(_masked, text))
    return _FLAG.sub(rf"\g<flag>{MASK}", text)


def _without_keys(text: str) -> str:
    """Return the plan of a function that takes a key, without bytes, and without what bytes are made of but columns.

    Of an argument that is too long, or that was cut off, nothing is shown, nor of what follows.
    """
    shown, end = [], 0
    text = _BYTES.sub(MASK, text)
    for call in _MAKES_BYTES.finditer(text):
        begin = call.end()
        if begin < end:  # within an argument that is masked
            continue
        depth, close = 1, begin
        while depth and close < min(len(text), begin + _LONGEST):
            depth += {"(": 1, ")": -1}.get(text[close], 0)
            close += 1
        inner = text[begin:] if depth else text[begin : close - 1]
        is_other_cast = call[0].lower() == "cast(" and " as binary" not in inner
        if depth or not (is_other_cast or _OF_COLUMNS.fullmatch(inner)):
            shown += [text[end:begin], MASK, " as binary" if inner.endswith(" as binary") else ""]
            end = begin + len(inner)
    return "".join([*shown, text[end:]])


def mask_logins(text: str, hidden: str = MASK) -> str:
    """Return a text without the passwords, and the tokens instead of users, in its URLs.

    Parameters
    ----------
    hidden
        What stands for them.
    """
    return _LONG_USER.sub(hidden, _LOGIN.sub(partial(_without_password, hidden), text))


def _without_password(hidden: str, login: re.Match[str]) -> str:
    oracle = login["oracle"]
    return f"{login['user']}:{hidden}" if oracle is None else f"{oracle}/{hidden}"


def mask_sql(text: str) -> str:
    """Return an SQL text without the passwords in it, where between name and value may be but a blank or a comma.

    If it calls a function that takes a key, no text in quotes is shown.
    """
    if _TAKES_KEY.search(text):
        return mask(_LITERAL.sub(f"'{MASK}'", text))
    return mask(_NAMED.sub(rf"\g<name>'{MASK}'", text))


def _masked(assigned: re.Match[str]) -> str:
    quote = assigned["quote"] or ""
    return f"{assigned['key']}{assigned['between']}{quote or assigned['open'] or ''}{MASK}{quote}"
