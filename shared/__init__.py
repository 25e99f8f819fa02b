"""What every process speaks: messages, stream names, the service loop, configuration, telemetry."""
