"""`treadle bench` and `treadle profile`: measure a running cluster, one engine, or the bookkeeping."""
