"""The history of jobs as events: in memory while they run, and in a folder of event logs."""
