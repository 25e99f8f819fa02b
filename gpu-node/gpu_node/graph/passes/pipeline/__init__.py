"""Parts of a batch in lanes that overlap (NanoFlow)."""
