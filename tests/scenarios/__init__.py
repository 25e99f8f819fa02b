"""Golden transcripts of the cores: what goes in, what comes out, line by line (see `transcript.py`)."""
