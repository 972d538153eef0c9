"""Files of SQL statements, such as Spark's own golden files, run natively and compared with plain Spark.

``python -m tests.golden FOLDER`` runs the files of ``sql/core/src/test/resources/sql-tests/inputs`` of a Spark release.
"""
