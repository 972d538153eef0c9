"""SVG drawings of jobs, rendered on the server from plain values."""
