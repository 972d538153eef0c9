"""Native vertices: what an embedded engine computes in Spark's Python workers, in place of Spark's operators."""
