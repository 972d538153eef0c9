"""Shadow mode: the comparison of a job's rows with those of plain Spark."""
