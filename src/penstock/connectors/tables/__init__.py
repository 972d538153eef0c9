"""Tables of Spark's catalog and of Hive, and what all table formats share."""
