"""What `treadle profile` has measured, as files."""
