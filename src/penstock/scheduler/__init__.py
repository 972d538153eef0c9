"""Decides vertices and runs them."""
