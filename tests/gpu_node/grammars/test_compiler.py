"""Languages over the tokens of a model: what may follow, where an output may end, and what cannot be compiled."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gpu_node.grammars.compiler import MAX_GRAMMARS, GrammarCompiler
from gpu_node.grammars.matcher import LlMatcher
from shared.files.model_file import ModelFileError
from shared.grammars.limits import MAX_LEXER_STATES
from shared.messages.requests.payload import Constraint, ConstraintKind
from tests.gateway.tiny import END, HELLO, TOKENS, ids, write_model

NUM_TOKENS = len(TOKENS)
HELL = TOKENS.index("hell")
READY_S = 30.0


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrammarCompiler]:
    path = write_model(tmp_path_factory.mktemp("grammars") / "tiny.gguf")
    made = GrammarCompiler({"tiny": path}.__getitem__)
    yield made
    made.close()


def matcher(compiler: GrammarCompiler, kind: ConstraintKind, text: str) -> LlMatcher:
    grammar = compiler.compile("tiny", Constraint(kind, text))
    compiler.wait(READY_S)
    assert grammar.is_ready
    assert grammar.problem == ""
    return grammar.matcher()


def problem(compiler: GrammarCompiler, kind: ConstraintKind, text: str) -> str:
    grammar = compiler.compile("tiny", Constraint(kind, text))
    compiler.wait(READY_S)
    return grammar.problem


def allowed(one: LlMatcher) -> set[int]:
    assert len(one.allowed) == -(-NUM_TOKENS // 8)
    return {token for token in range(NUM_TOKENS) if one.allowed[token // 8] >> token % 8 & 1}


def test_tokens_that_lead_to_a_word_are_allowed_and_no_others(compiler: GrammarCompiler) -> None:
    one = matcher(compiler, "regex", "hello?!")
    assert allowed(one) == {ord("h"), TOKENS.index("he"), HELL, HELLO}
    one.take(HELL)
    assert allowed(one) == {ord("o"), ord("!")}
    one.take(ord("!"))
    assert one.is_over
    assert one.error == ""


def test_an_output_may_end_where_its_language_does(compiler: GrammarCompiler) -> None:
    one = matcher(compiler, "regex", "a{2,3}")
    one.take(ord("a"))
    assert allowed(one) == {ord("a")}
    one.take(ord("a"))
    assert allowed(one) == {ord("a"), END}
    assert not one.is_over
    one.take(END)
    assert one.is_over
    assert one.error == ""


def test_a_whole_output_is_over_without_an_end_token(compiler: GrammarCompiler) -> None:
    one = matcher(compiler, "json_schema", '{"type": "object", "properties": {}, "additionalProperties": false}')
    for token in ids("{}"):
        assert not one.is_over
        one.take(token)
    assert one.is_over


@pytest.mark.parametrize(
    ("kind", "text", "word"),
    [
        ("choice", '["yes", "no"]', "no"),
        ("grammar", 'start: "<" NAME ">"\nNAME: /[a-z]+/', "<ab>"),
        ("grammar", 'root ::= "a" ("b" | "c")', "ac"),
        ("json_schema", '{"enum": [1, "x"]}', '"x"'),
        ("json_schema", '{"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 1}', "[ true]"),
    ],
)
def test_each_kind_of_constraint_has_its_words(
    compiler: GrammarCompiler, kind: ConstraintKind, text: str, word: str
) -> None:
    one = matcher(compiler, kind, text)
    for token in ids(word):
        assert token in allowed(one)
        one.take(token)
    assert one.is_over


def test_a_token_outside_of_the_language_is_an_error_of_its_output_alone(compiler: GrammarCompiler) -> None:
    one, other = (matcher(compiler, "regex", "[0-9]+") for _ in range(2))
    one.take(ord("x"))
    assert one.error.startswith("structured output: ")
    assert not one.is_over
    assert other.error == ""
    assert allowed(other) == set(ids("0123456789"))


def test_a_language_whose_output_took_all_of_its_states_is_there_for_the_next_one(compiler: GrammarCompiler) -> None:
    """Each choice of the last 21 letters is a state, of which there may be 50,000, and copies share them."""
    regex, draw = "(a|b)*a(a|b){20}c", Random(0)
    one = matcher(compiler, "regex", regex)
    for _ in range(MAX_LEXER_STATES):
        if one.error:
            break
        one.take(draw.choice(b"ab"))
    assert "too many states" in one.error
    other = matcher(compiler, "regex", regex)
    other.take(ord("a"))
    assert (other.error, allowed(other)) == ("", {ord("a"), ord("b")})


def test_what_stands_before_the_word_may_be_anything_up_to_a_control_token(compiler: GrammarCompiler) -> None:
    start = TOKENS.index("<|im_start|>")
    lead = f"lead: THOUGHTS <[{start}]>\nTHOUGHTS: /(?s:.*)/\n"
    grammar = compiler.compile("tiny", Constraint("regex", "hello?!", lead))
    compiler.wait(READY_S)
    one = grammar.matcher()
    assert {ord("?"), HELLO, start} <= allowed(one)
    one.take(HELLO)
    one.take(start)
    assert allowed(one) == {ord("h"), TOKENS.index("he"), HELL, HELLO}


def test_control_tokens_are_no_text(compiler: GrammarCompiler) -> None:
    """A client who writes the name of a control token means its characters."""
    one = matcher(compiler, "choice", '["<|im_start|>"]')
    assert allowed(one) == {ord("<")}


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("regex", "a(", "unclosed group"),
        ("json_schema", '{"not": {}}', "not"),
        ("json_schema", "[1]", "a schema is a JSON object"),
        ("choice", "[]", "at least one string"),
        ("grammar", "start: missing", "missing"),
    ],
)
def test_what_cannot_be_compiled_says_why(compiler: GrammarCompiler, kind: ConstraintKind, text: str, why: str) -> None:
    said = problem(compiler, kind, text)
    assert said.startswith("structured output: ")
    assert why in said


def test_files_that_cannot_be_used_are_a_problem_of_the_request(tmp_path: Path) -> None:
    def path_of(name: str) -> Path:
        raise ModelFileError(f"{name} is missing")

    compiler = GrammarCompiler(path_of)
    assert problem(compiler, "regex", "a") == "structured output: tiny is missing"
    compiler.close()


def test_models_that_are_directories_need_nothing_that_reads_other_files() -> None:
    """As in the environment of vLLM."""
    code = "import sys; sys.modules['gguf'] = None; import gpu_node.grammars.compiler"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_defect_is_raised() -> None:
    def path_of(name: str) -> Path:
        raise RuntimeError("a defect")

    compiler = GrammarCompiler(path_of)
    with pytest.raises(RuntimeError, match="a defect"):
        problem(compiler, "regex", "a")
    compiler.close()


def test_what_is_not_compiled_yet_is_not_forgotten(tmp_path: Path) -> None:
    """Its requests would be waited for by nobody."""
    path, arrived = write_model(tmp_path / "tiny.gguf"), threading.Event()

    def path_of(name: str) -> Path:
        assert arrived.wait(READY_S)
        return path

    one = GrammarCompiler(path_of)
    made = [one.compile("tiny", Constraint("regex", str(number))) for number in range(MAX_GRAMMARS + 2)]
    assert one.compile("tiny", Constraint("regex", "0")) is made[0]
    arrived.set()
    while not all(grammar.is_ready for grammar in made):
        one.wait(READY_S)
    last = one.compile("tiny", Constraint("regex", "x"))
    assert one.compile("tiny", Constraint("regex", "x")) is last
    assert one.compile("tiny", Constraint("regex", "1")) is not made[1], "the three that were asked for first are gone"
    assert one.compile("tiny", Constraint("regex", "0")) is made[0]
    one.close()


def test_so_many_grammars_are_kept_and_the_latest_are(compiler: GrammarCompiler) -> None:
    first = compiler.compile("tiny", Constraint("regex", "0"))
    assert compiler.compile("tiny", Constraint("regex", "0")) is first
    others = [compiler.compile("tiny", Constraint("regex", str(number))) for number in range(1, MAX_GRAMMARS)]
    while not all(grammar.is_ready for grammar in others):  # who is waited for is not forgotten
        compiler.wait(READY_S)
    assert compiler.compile("tiny", Constraint("regex", "0")) is first
    compiler.compile("tiny", Constraint("regex", str(MAX_GRAMMARS)))
    assert compiler.compile("tiny", Constraint("regex", "0")) is first, "it was asked for after 1"
    again = compiler.compile("tiny", Constraint("regex", "1"))
    compiler.wait(READY_S)
    assert again.matcher().error == ""


def test_a_copy_goes_ahead_and_the_output_may_follow_or_not(compiler: GrammarCompiler) -> None:
    one = matcher(compiler, "regex", "(hello|hex)[0-9]!")
    behind = one.ahead(HELLO)
    assert allowed(behind) == set(ids("0123456789"))
    last = behind.ahead(ord("7"))
    assert allowed(last) == {ord("!")}
    assert last.ahead(ord("!")).is_over
    assert one.ahead(HELLO) is behind, "what is known is not made again"
    assert allowed(one) == {ord("h"), TOKENS.index("he"), HELL, HELLO}, "it stands where it stood"
    one.take(HELLO)
    one.take(ord("5"))  # it was 7
    assert allowed(one) == {ord("!")}
    one.take(ord("!"))
    assert one.is_over


def test_a_copy_outside_of_the_language_is_an_error_of_the_copy_alone(compiler: GrammarCompiler) -> None:
    one = matcher(compiler, "regex", "[0-9]+")
    assert one.ahead(ord("x")).error.startswith("structured output: ")
    one.take(ord("1"))
    assert one.error == ""


@pytest.mark.parametrize(
    ("regex", "forced"),
    [
        ("hello![ab]", HELLO),
        ("hello[ab]", HELL),  # the last character may be part of a token with what comes behind it
        ("h[ea]", ord("h")),
        ("[xy]", None),
        ("\u00e9\u00e9[ab]", 0xC3),  # a token is a byte of a character here
    ],
)
def test_of_a_text_that_alone_can_follow_a_first_token_is_told(
    compiler: GrammarCompiler, regex: str, forced: int | None
) -> None:
    assert matcher(compiler, "regex", regex).forced_token == forced
