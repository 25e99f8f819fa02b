"""A service around a pure core: driver, log, lease, clock, admin port, and workers for slow decisions."""
