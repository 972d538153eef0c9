"""Computations that DuckDB runs in Spark's Python workers instead of Spark's operators."""
