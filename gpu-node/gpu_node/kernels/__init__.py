"""The operations of programs: typed entries (`operations`) with their reference, and the kernels of devices."""
