"""Access to Spark's JVM: the bridge, handles, compiled Java classes, sessions."""
