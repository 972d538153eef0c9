"""Native execution by DuckDB: the only package that uses DuckDB."""
