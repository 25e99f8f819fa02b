"""What `treadle pipeline` and `treadle bench pipeline` tell."""
