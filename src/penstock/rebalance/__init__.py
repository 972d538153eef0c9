"""Load-based adaptive exchange: rows go to whichever consumer is idlest."""
