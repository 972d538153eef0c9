"""Masking of secrets in the log records of Penstock, whichever handlers and formatters receive them."""

from __future__ import annotations

import logging

from penstock.masking import mask

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
)
"""The names of all loggers of Penstock."""
_FORMATTER = logging.Formatter()


def mask_logs() -> None:
    """Mask the secrets in every record that is logged from now on.

    Each logger needs the filter: the filters of a parent do not see the records of its children, and handlers belong
    to the user.
    """
    for name in LOGGERS:
        logging.getLogger(name).addFilter(mask_record)


def mask_record(record: logging.LogRecord) -> bool:
    """Mask the secrets in a log record, also those in its traceback; a record without secrets stays unchanged.

    The result is always True, so that no record is dropped.
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
