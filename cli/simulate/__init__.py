"""`treadle sim` and `treadle plan`: clusters of devices that are not there."""
