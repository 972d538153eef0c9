"""How much each task reads, as plain arithmetic: figures in, ranges and numbers out."""
