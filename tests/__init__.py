"""Tests of all rooms. Numbers are computed by one thread a process: several processes share the tests, and the threads
of libraries that wait for one another in a loop took half of the time of kernels that an interpreter runs.
"""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # read when numpy and torch are imported
    os.environ.setdefault(name, "1")
