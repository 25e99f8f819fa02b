"""Golden transcripts of the cores: what goes in, what comes out, line by line. `transcript.py` says how to read them."""
