"""Runs plans: jobs, exchanges, dynamic filters, and their statistics."""
