"""Programs on NVIDIA devices; by Triton's interpreter, where there are none."""
