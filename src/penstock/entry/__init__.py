"""Entry points of programs: the environment, observers, and functions on DataFrames."""
