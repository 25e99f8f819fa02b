"""Two engine processes with a link between them, as their agents would have it: `treadle bench offload`."""
