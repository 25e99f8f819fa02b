"""A vocabulary for tiny models whose tokens are characters and pieces of several, and languages over it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_node.grammars.compiler import GrammarCompiler
from shared.messages.requests.payload import Constraint
from shared.vocabulary.gguf_vocabulary import TokenType
from tests.gateway.tiny import write_model
from tests.gpu_node import tiny

LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789", *'{}[]:,"-_Ġ<>']
PIECES = ['{"', '":', 'Ġ"', '",', '"}', "na", "name", "me", "ag", "age", "bi", "rth", "birth", "year", "ye", "ar", "12"]
UNUSED = tiny.VOCAB - len(LETTERS) - len(PIECES) - 3
TOKENS = ["<unused>", "<start>", "<end>", *LETTERS, *PIECES, *(f"<unused{number}>" for number in range(UNUSED))]
AGE = TOKENS.index("age")
PERSON = Constraint(
    "json_schema",
    '{"type": "object", "properties": {"name": {"enum": ["na", "me"]}, "birthyear": {"type": "integer", "maximum": 99,'
    ' "minimum": 0}, "age": {"type": "boolean"}}, "required": ["name", "birthyear", "age"],'
    ' "additionalProperties": false}',
)
PEOPLE = Constraint(
    "json_schema",
    '{"type": "array", "minItems": 2, "maxItems": 3, "items": {"type": "object", "properties": {"name": {"enum":'
    ' ["a", "b"]}, "age": {"enum": [1, 12]}}, "required": ["name", "age"], "additionalProperties": false}}',
)
DATE = Constraint("regex", "birth-(name|age)-[0-9]{2}-birthyear")
CHOICE = Constraint("choice", '["birthname", "birthyear", "age-12"]')
CALL = Constraint("grammar", 'start: "<name>" ARGUMENTS "<age>"\nARGUMENTS: /birth_(year|name):[0-9]{1,3}/')
THOUGHT = replace(PERSON, lead="lead: THOUGHTS\nTHOUGHTS: /[a-c]{4,8}-/\n")
LANGUAGES = (PERSON, PEOPLE, DATE, CHOICE, CALL, THOUGHT)
READY_S = 30.0


def compiled(folder: Path) -> GrammarCompiler:
    """All languages, for the model "tiny"; who asks for one waits for nothing."""
    kinds = [TokenType.CONTROL if text.startswith("<") and len(text) > 1 else TokenType.NORMAL for text in TOKENS]
    given: dict[str, Any] = {"tokens": TOKENS, "kinds": kinds, "merges": ["n a"]}
    path = write_model(folder / "pieces.gguf", eos=tiny.EOS, bos=1, template=None, **given)
    compiler = GrammarCompiler({"tiny": path}.__getitem__)
    for language in LANGUAGES:
        grammar = compiler.compile("tiny", language)
        compiler.wait(READY_S)
        assert grammar.is_ready
        assert not grammar.problem, grammar.problem
    return compiler
