"""Native execution by DuckDB: the only package that knows it."""
