"""Plans jobs: from DataFrames to a stream graph."""
