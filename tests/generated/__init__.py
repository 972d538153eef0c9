"""Random pipelines, compared with plain Spark: see docs/explanation/generated-pipelines.md."""
