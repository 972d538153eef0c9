"""Reports of jobs for users: explained plans, progress bars, tables."""
