"""What happened to jobs, as events: kept in memory while they run, and in a folder for later."""
