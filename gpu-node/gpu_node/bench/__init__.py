"""The engine measured without HTTP, in a process of its own: `python -m gpu_node.bench`, for `treadle bench engine`.

Only `rates` and `__main__` import tensors: the command line reads what comes out of the process.
"""
