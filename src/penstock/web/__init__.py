"""The REST API and the page: the same records that the log, `explain` and the terminal show."""
