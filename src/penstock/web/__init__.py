"""The REST API and the web page, computed from the job records that the log, `explain` and the terminal show."""
