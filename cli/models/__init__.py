"""`treadle models`: fetch and list model files."""
