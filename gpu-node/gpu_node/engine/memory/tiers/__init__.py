"""KV below the device: host memory, and what lies where on an SSD."""
