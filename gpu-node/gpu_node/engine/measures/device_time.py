"""How much of its time a device computes while there is work, and how long it waits for the host."""

from __future__ import annotations

from gpu_node.engine.border.plan import StepResult


class DeviceTime:
    """Sums over steps, in seconds as the executor measures them."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.busy_s = 0.0
        """In steps."""
        self.gap_s = 0.0
        """Between two steps while there was work: what the host costs the device."""
        self.served_s = 0.0
        """Of ``busy_s``, what went to other engines' attention."""
        self.waited_s = 0.0
        """Of ``busy_s``, what went to waiting for a receiver."""

    def observe(self, result: StepResult, *, follows: bool) -> None:
        """Count one step. ``follows``: there was work ever since the step before, else the device rightly had none."""
        self.num_steps += 1
        self.busy_s += result.duration_s
        self.gap_s += result.idle_s if follows else 0.0
        self.served_s += result.served_s
        self.waited_s += result.waited_s
