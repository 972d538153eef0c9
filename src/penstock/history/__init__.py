"""The history of jobs: records of jobs in memory, and event logs in a folder, from which records are loaded."""
