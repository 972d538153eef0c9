"""Utilities that do not depend on Spark or on jobs: units, masking, threads, tables."""
