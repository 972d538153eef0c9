"""Masking of secrets in options, URLs, messages and log records."""

from __future__ import annotations

import logging
import re
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MASK = "******"
_SENSITIVE_NAMES = (
    r"password|passwd|passphrase|passcode|pwd|secret|token|credential|authorization|cookie|cipher|signature"
    r"|connection[._-]?string|key[._-]pem|sessionid"
    r"|(?:access|account|api|shared|sas|private|encryption|signing|service[._-]account)[._-]?key"
)
_SHORT_NAMES = r"(?:(?<![a-z0-9])(?:sas|sig|pw|jwt)|(?<!by)(?<!com)pass)(?![\w.-])"
"""Short sensitive names, which match only at the end of a name: not in ``pass_id``."""
_SECRET_KEY = re.compile(rf"{_SENSITIVE_NAMES}|{_SHORT_NAMES}|private|(?:^|[._-])sas(?:[._-]|$)", re.IGNORECASE)
_NON_SECRET_ENDINGS = re.compile(
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
"""Endings of the names of properties that are not secrets, from the clients of supported systems."""
_HARMLESS_VALUES = {"", "true", "false"}
_LOGIN = re.compile(
    r"(?<=://)(?P<user>[^\s/@:]*):(?:[^\s/?#]+|(?!\d+[/?#])[^\s@?#\"'<>]{1,256})(?=@)"
    r"|(?<=\boracle:)(?P<oracle>\w+:[^\s/@:]*)/[^\s]{1,256}(?=@)",
    re.IGNORECASE,
)
"""User and password in a URL, also of Oracle. A password may have a slash (S3 keys do); digits before it are a port."""
_TOKEN_AS_USER = re.compile(r"(?<=://)[\w.~%+-]{20,}(?=@[\w.-]+(?:[:/]|$))")
"""A token in place of the user's name in a URL, as for Git repositories."""
_SECRET_NAME = rf"(?=[\w.-]*?(?:{_SENSITIVE_NAMES}|{_SHORT_NAMES}))[\w.-]+"
_ASSIGNMENT = re.compile(
    rf"(?<![\w.-])(?P<key>{_SECRET_NAME})(?P<between>\\*[\"']?\s*(?:->|[=:]|%3[ad])\s*|[\"']\s*,\s*(?=[\"']))"
    r"(?:(?P<quote>\\*[\"'])(?:(?!(?P=quote))(?:\\.|[^\\\n]))+(?P=quote)"
    r"|\{(?:[^{}\n]|\}\}){1,1000}\}"
    r"|(?P<open>\\*[\"']?)(?:(?:bearer|basic)\s+)?[^\s&;,\"'<>)}]+"
    r"(?:[&;]+(?![\w.-]+(?: [\w.-]+)*\s*=)[^\s&;,\"'<>)}]+)*)",
    re.IGNORECASE,
)
"""A sensitive name and its value, which ends at its closing quote or brace, else at a space or separator."""
_COMMAND_LINE_OPTION = re.compile(rf"(?<![\w.-])(?P<flag>--?{_SECRET_NAME}\s+)(?!-)[^\s\"']+", re.IGNORECASE)
"""A command-line option with its value."""
_HEADER = re.compile(
    r"(?<![\w-])(?P<header>(?:set-cookie2?|cookie|(?:proxy-)?authorization)\s*:\s*)[^\s\"'][^\r\n]*", re.IGNORECASE
)
"""An HTTP header, whose value may have spaces and several parts."""
_BARE_SECRET = re.compile(
    r"(?<![\w.-])eyJ[\w-]{8,}\.[\w-]+\.[\w-]*|(?<=\bbearer )[\w.~+/=-]{16,}"
    r"|(?<=PRIVATE KEY-----)(?:(?!-----)[\s\S]){1,20000}",
    re.IGNORECASE,
)
"""Secrets that are recognized by their form: web tokens, bearer tokens, and keys in PEM."""
_LITERAL = re.compile(r"'(?:\\.|''|[^'\\])*(?:'|$)|\"(?:\\.|\"\"|[^\"\\])*(?:\"|$)", re.DOTALL)
"""A string literal in SQL, which may be truncated."""
_SQL_ASSIGNMENT = re.compile(
    rf"(?P<name>(?:(?<=[\"'`]){_SECRET_NAME}[\"'`]|(?<![\"'`\w.-]){_SECRET_NAME})"
    rf"\s*+(?:[=:,<>!]{{1,3}}|like\b|in\s*+\()?+\s*+)(?:{_LITERAL.pattern})",
    re.IGNORECASE | re.DOTALL,
)
"""A sensitive name and a string literal in SQL, separated by an operator, a comma or only white space."""
_CRYPTO_FUNCTION = re.compile(r"\b(?:try_)?aes_?(?:en|de)crypt\b", re.IGNORECASE)
_BINARY_LITERAL = re.compile(r"\b0x[0-9a-f]+", re.IGNORECASE)
_BYTES_CONVERSION = re.compile(r"\b(?:cast|unhex|unbase64|encode|to_binary)\(", re.IGNORECASE)
"""The start of a call in a plan that converts a text, which may be a key, to bytes."""
_MAX_ARGUMENT = 2000
"""The maximum number of characters that are searched for the end of an argument, to limit the time for deep plans."""
_WITHOUT_LITERALS = re.compile(r"(?:\w+#\d+L?| as \w+|\w+\(|\)|,|utf-\d+\w*|us-ascii|iso-8859-1|\s)*", re.IGNORECASE)
"""An expression of columns and functions whose only literals are names of character sets."""
_SECRET_VALUE_PREFIXES = ("-----BEGIN", "{")
"""Prefixes of values that may be secrets: keys in PEM, and the JSON files of service accounts."""


def mask_value(key: str, value: object) -> str:
    """Return the value of an option as text: `MASK` if the key names a secret, else the value with masked secrets."""
    return MASK if is_secret(key) else mask(str(value))


def repr_without_secrets(instance: DataclassInstance) -> str:
    """Return the repr of a dataclass instance without secrets, for use as its ``__repr__``."""
    values = (f"{field.name}={mask(repr(getattr(instance, field.name)))}" for field in fields(instance) if field.repr)
    return f"{type(instance).__qualname__}({', '.join(values)})"


def is_secret(key: str) -> bool:
    """Whether the key of an option names a secret, such as a password."""
    return _SECRET_KEY.search(key) is not None


def can_be_stored(key: str, value: str) -> bool:
    """Whether a property of a client may be stored in a file: it is not a secret, and its name or value is harmless."""
    if is_secret(key) or value.lstrip().startswith(_SECRET_VALUE_PREFIXES) or mask(value) != value:
        return False
    return _NON_SECRET_ENDINGS.search(key) is not None or value.lower() in _HARMLESS_VALUES


def mask(text: str) -> str:
    """Mask the secrets in a text: tokens, and secrets in URLs, assignments, headers, command lines and plans."""
    if _CRYPTO_FUNCTION.search(text):
        text = _mask_key_arguments(text)
    text = _TOKEN_AS_USER.sub(MASK, _LOGIN.sub(_mask_password, text))
    text = _HEADER.sub(rf"\g<header>{MASK}", text)
    text = _BARE_SECRET.sub(MASK, _ASSIGNMENT.sub(_mask_assignment, text))
    return _COMMAND_LINE_OPTION.sub(rf"\g<flag>{MASK}", text)


def _mask_key_arguments(text: str) -> str:
    """Mask binary literals, and texts that are converted to bytes, in a plan with encryption functions.

    If an argument is too long or truncated, everything after its start is masked.
    """
    parts, end = [], 0
    text = _BINARY_LITERAL.sub(MASK, text)
    for call in _BYTES_CONVERSION.finditer(text):
        begin = call.end()
        if begin < end:  # inside a masked argument
            continue
        depth, close = 1, begin
        while depth and close < min(len(text), begin + _MAX_ARGUMENT):
            depth += {"(": 1, ")": -1}.get(text[close], 0)
            close += 1
        inner = text[begin:] if depth else text[begin : close - 1]
        is_cast_to_other_type = call[0].lower() == "cast(" and " as binary" not in inner
        if depth or not (is_cast_to_other_type or _WITHOUT_LITERALS.fullmatch(inner)):
            parts += [text[end:begin], MASK, " as binary" if inner.endswith(" as binary") else ""]
            end = begin + len(inner)
    return "".join([*parts, text[end:]])


def _mask_password(login: re.Match[str]) -> str:
    oracle = login["oracle"]
    return f"{login['user']}:{MASK}" if oracle is None else f"{oracle}/{MASK}"


def mask_sql(text: str) -> str:
    """Return an SQL text with masked secrets.

    If it calls an encryption function, all string literals are masked, as one of them may be the key.
    """
    if _CRYPTO_FUNCTION.search(text):
        return mask(_LITERAL.sub(f"'{MASK}'", text))
    return mask(_SQL_ASSIGNMENT.sub(rf"\g<name>'{MASK}'", text))


def _mask_assignment(match: re.Match[str]) -> str:
    quote = match["quote"] or ""
    return f"{match['key']}{match['between']}{quote or match['open'] or ''}{MASK}{quote}"


LOGGERS = (
    "penstock",
    "penstock.commit",
    "penstock.config",
    "penstock.connectors",
    "penstock.extension",
    "penstock.graph",
    "penstock.history",
    "penstock.metrics",
    "penstock.native",
    "penstock.optimizer",
    "penstock.rebalance",
    "penstock.scheduler",
    "penstock.sinks",
    "penstock.sources",
    "penstock.spark",
    "penstock.state",
    "penstock.web",
)
"""The names of all loggers of Penstock."""
_FORMATTER = logging.Formatter()


def mask_logs() -> None:
    """Mask the secrets in every record that Penstock logs from now on, whichever handlers and formatters receive it.

    Each logger needs the filter: a parent's filters do not see records of its children, and handlers are the user's.
    """
    for name in LOGGERS:
        logging.getLogger(name).addFilter(mask_record)


def mask_record(record: logging.LogRecord) -> bool:
    """Mask the secrets in a log record, also those in its traceback.

    A record stays unchanged if it has no secrets and can be formatted. Return True, so that logging drops no record.
    """
    try:
        message = masked = record.getMessage()
    except Exception:  # noqa: BLE001 - logging must not raise, and the default error report of logging contains the arguments
        message, masked = "", f"{record.msg} (the arguments cannot be formatted)"
    masked = mask(masked)
    if record.exc_info:
        traceback = _FORMATTER.formatException(record.exc_info)
        if (masked_traceback := mask(traceback)) != traceback:
            # Formatters may format the exception themselves, and not all of them read `exc_text`. So the traceback
            # becomes part of the message, as `logging.handlers.QueueHandler` does it.
            masked = f"{masked}\n{masked_traceback}"
            record.exc_info = record.exc_text = None
    if masked != message:
        record.msg, record.args = masked, None
    return True
