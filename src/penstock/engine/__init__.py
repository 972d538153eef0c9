"""The interface of native engines, which compute parts of a query instead of Spark's operators."""
