"""Shadow mode: a job's rows are compared with those of plain Spark."""
