"""Running plans: jobs, exchanges, filters, and their statistics."""
