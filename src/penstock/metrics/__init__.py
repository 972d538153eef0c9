"""What jobs did, as figures for Prometheus and OpenTelemetry."""
