"""Pictures of jobs, made on the server: plain values in, SVG out."""
