"""Tables of Spark's catalog and of Hive, and code that all table formats share."""
