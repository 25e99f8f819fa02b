"""Kernels for NVIDIA devices, in Triton: one operation a file, one typed entry each.

An entry takes what the entry of the same name in `gpu_node.kernels` takes, tensors of a device and of any float type,
and behind it ``out``, where to write: a CUDA graph replays a step over fixed buffers. Rows may lie apart, as those of
some columns of a wider buffer do; the columns of a row lie side by side. Sums are float32, whatever the buffers are.
A wrong shape or type is a defect of the caller: `ValueError`.

Products of matrices, sums of two buffers and the choice of rows that draw are torch's own. With ``TRITON_INTERPRET=1``
in the environment when this is imported, kernels run on tensors of the CPU, without a device: slowly, number by number
the same program.
"""
