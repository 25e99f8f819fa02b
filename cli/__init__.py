"""The `treadle` command: start, stop, look at and measure a cluster on this machine."""
