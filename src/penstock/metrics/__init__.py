"""Metrics of jobs for Prometheus and OpenTelemetry."""
