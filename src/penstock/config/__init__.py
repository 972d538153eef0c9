"""Options: declared in `options`, with values in a `Configuration`."""

from penstock.config.configuration import Configuration, table_option
from penstock.config.option import Option, parse_duration, parse_size
from penstock.config.options import OPTIONS

__all__ = ["OPTIONS", "Configuration", "Option", "parse_duration", "parse_size", "table_option"]
