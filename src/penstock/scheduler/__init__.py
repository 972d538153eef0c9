"""Decides how vertices run, and runs them."""
