"""The interfaces of sources and sinks, and code that several connectors share."""
