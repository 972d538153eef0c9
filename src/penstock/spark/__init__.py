"""The only package that calls Spark's JVM."""
