"""The REST API and the web page, computed from job records: of this process, or loaded from event logs."""
