"""Handlers of the user receive no secrets in the records of Penstock's loggers, and still receive the tracebacks."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from penstock.base.masking import LOGGERS, MASK
from penstock.commit.prepared import Access
from penstock.connectors.jdbc.commit import recover_table
from penstock.spark.bridge.jvm import Bridge
from tests.support.paths import ROOT
from tests.support.services import DRIVERS, require_component

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = ROOT / "src" / "penstock"
SECRET = "hunter2"
URL = f"jdbc:postgresql://db/shop?user=me&password={SECRET}"
LOGGER_NAME = re.compile(r"getLogger\((.*?)\)")


class Plain(logging.Formatter):
    pass


class Json(logging.Formatter):
    """A formatter that formats the exception itself and ignores `exc_text`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"message": record.getMessage()}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


class Lines(logging.Handler):
    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def logged(owner: str, formatter: logging.Formatter) -> Iterator[list[str]]:
    """Return the lines that a user's handler of a logger receives during the block."""
    handler, logger, penstock = Lines(formatter), logging.getLogger(owner), logging.getLogger("penstock")
    level = penstock.level
    logger.addHandler(handler)
    penstock.setLevel(logging.DEBUG)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        penstock.setLevel(level)


def fail(text: str) -> None:
    raise ValueError(text)


def fail_with_cause() -> None:
    try:
        fail(f"connecting to {URL}")
    except ValueError as error:
        raise OSError("no connection") from error


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError(URL)

    def __repr__(self) -> str:
        return URL


def log_exception(log: logging.Logger, failure: Callable[[], None], *arguments: Any) -> None:
    try:
        failure()
    except Exception:
        log.warning("no query%s", *arguments, exc_info=True)


CALLS: dict[str, Callable[[logging.Logger], None]] = {
    "message": lambda log: log.info(f"reads {URL}"),  # noqa: G004
    "argument": lambda log: log.info("reads %s", URL),
    "mapping": lambda log: log.info("reads %(url)s", {"url": URL}),
    "error as argument": lambda log: log.info("failed: %s", ValueError(URL)),
    "argument that cannot be formatted": lambda log: log.info("failed: %s", Unprintable()),
    "exception": lambda log: log_exception(log, lambda: fail(URL), ""),
    "cause of an exception": lambda log: log_exception(log, fail_with_cause, ""),
    "argument and exception": lambda log: log_exception(log, lambda: fail(URL), f" of {URL}"),
}
WITH_TRACEBACK = {"exception", "cause of an exception", "argument and exception"}


@pytest.mark.parametrize("formatter", [Plain(), Json()], ids=["plain", "json"])
@pytest.mark.parametrize("owner", ["", "penstock", "penstock.sinks"])
@pytest.mark.parametrize("call", CALLS)
def test_no_secret_reaches_a_handler(call: str, owner: str, formatter: logging.Formatter) -> None:
    with logged(owner, formatter) as lines:
        CALLS[call](logging.getLogger("penstock.sinks"))
    (line,) = lines
    assert SECRET not in line
    assert ("Traceback (most recent call last)" in line and "in fail" in line) == (call in WITH_TRACEBACK)
    assert MASK in line or call == "argument that cannot be formatted"


def test_a_record_without_secrets_stays_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    """Formatters and services may group records by their template, or read the exception."""
    with caplog.at_level(logging.INFO, "penstock"):
        log_exception(logging.getLogger("penstock.sinks"), lambda: fail("refused"), " of me")
    (record,) = caplog.records
    assert (record.msg, record.args) == ("no query%s", (" of me",))
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


def test_every_logger_of_the_source_is_masked() -> None:
    names = {
        name.strip("\"'")
        for path in SOURCE.rglob("*.py")
        if path.name not in {"masking.py", "quiet.py"}
        for name in LOGGER_NAME.findall(path.read_text())
    }
    assert names == set(LOGGERS)


def test_a_driver_that_names_its_url_is_logged_without_the_password(spark: SparkSession) -> None:
    require_component("PostgreSQL's JDBC driver", DRIVERS["postgresql"])
    url = f"jdbc:postgresql://127.0.0.1:noport/shop?user=me&password={SECRET}"
    access = Access(Bridge(spark), {url: {"url": url, "driver": "org.postgresql.Driver"}})
    with logged("", Plain()) as lines:
        recover_table(access, url, url, "orders")
    (text,) = [line for line in lines if "could not be read" in line]
    assert "Traceback (most recent call last)" in text
    assert f"Unable to parse URL jdbc:postgresql://127.0.0.1:noport/shop?user=me&password={MASK}" in text
    assert SECRET not in text
