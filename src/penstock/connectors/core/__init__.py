"""The interfaces of sources and sinks, and what connectors share."""
