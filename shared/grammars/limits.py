"""What a grammar may cost: to build, and at each token. A constraint that takes more is refused, or ends its output."""

from __future__ import annotations

from llguidance import LLParserLimits

MAX_GRAMMAR_SYMBOLS = 100_000
"""In all its rules together; a JSON schema of 2,000 properties has a third of them."""

BUILD_LEXER_FUEL = 500_000
"""Steps to build its regular expressions: at most about 200 ms."""

STEP_LEXER_FUEL = 100_000
"""Steps of its regular expressions for one token's mask: at most about 10 ms."""

STEP_PARSER_ITEMS = 25_000
"""Of Earley's sets for one token's mask: about 1 ms."""

MAX_ROW_ITEMS = 1_000
"""Of one of Earley's sets: how many ways of reading the text so far are followed at once."""

MAX_LEXER_STATES = 50_000
"""Kept of one output, at half a kB each: 25 MB at most. Ordinary schemas have some hundred."""

LIMITS = LLParserLimits(
    max_items_in_row=MAX_ROW_ITEMS,
    initial_lexer_fuel=BUILD_LEXER_FUEL,
    step_lexer_fuel=STEP_LEXER_FUEL,
    step_max_items=STEP_PARSER_ITEMS,
    max_lexer_states=MAX_LEXER_STATES,
    max_grammar_size=MAX_GRAMMAR_SYMBOLS,
    precompute_large_lexemes=False,
    verbose_errors=False,
)
"""For every parser of a client's constraint, at gateways and nodes alike."""
