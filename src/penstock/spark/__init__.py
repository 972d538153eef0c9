"""The only room that touches Spark's JVM side."""
