"""From DataFrames to a stream graph."""
