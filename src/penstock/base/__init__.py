"""Basics without knowledge of Spark or of jobs: units, masking, threads, tables."""
