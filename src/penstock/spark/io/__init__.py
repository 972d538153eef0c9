"""File systems, files, tables and databases as Spark reads and writes them."""
