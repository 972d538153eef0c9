"""Load-based rebalancing: rows go to the least loaded consumer."""
