"""Running one vertex on Spark: what it reads, its fragment of the plan, what it writes."""
