"""Formal languages of outputs: a client's constraint as llguidance's grammar, and what such a grammar may cost."""
