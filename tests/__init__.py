"""Tests of all rooms. Numbers are computed by one thread a process: several processes share the tests, and the threads
of libraries that wait for one another in a loop took half of the time of kernels that an interpreter runs. None speaks
to a stranger, so no process reads the certificates of this machine, as aiohttp does in each that imports it.
"""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # read when numpy and torch are imported
    os.environ.setdefault(name, "1")
os.environ.setdefault("SSL_CERT_FILE", os.devnull)
