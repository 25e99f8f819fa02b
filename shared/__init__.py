"""What every process speaks: messages, stream names, the service loop, configuration, telemetry."""

__version__ = "0.1.0"
