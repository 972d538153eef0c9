"""Settings of the user for positions in a DataFrame's plan."""
