"""Best times of a layer's operators on the CPU device, and what they keep beside one another: NanoFlow's profiles."""
