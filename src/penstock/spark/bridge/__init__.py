"""Access to Spark's JVM: the `Bridge`, wrappers of JVM objects, Penstock's Java classes, sessions."""
