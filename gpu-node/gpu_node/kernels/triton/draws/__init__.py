"""Drawing tokens on the device, bit for bit as `gpu_node.executors.draws.sampler`."""
