"""LoRA adapters: what their files say, and the stacks of matrices that kernels take."""
