from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.generation.detokenizer import Detokenizer
from gateway.models.models import ServedModel
from tests.gateway.tiny import END, HELLO, TOOL, ids

BYTES = [bytes([byte]) for byte in range(256)]


def pieces(table: list[bytes], token_ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(table)
    return [*map(detokenizer.feed, token_ids), detokenizer.flush()]


@given(st.lists(st.integers(0, 255), max_size=60))
@example(list("🧵 繊維 שלום é".encode()))
@example([0xF0, 0x9F, 0xA7])
@example([0xE2, 0x28, 0xA1])
def test_pieces_of_any_bytes_join_to_the_whole(token_ids: list[int]) -> None:
    assert "".join(pieces(BYTES, token_ids)) == bytes(token_ids).decode(errors="replace")


@given(st.text(max_size=40))
def test_valid_text_never_gives_a_replacement(text: str) -> None:
    found = pieces(BYTES, list(text.encode()))
    assert "".join(found) == text
    assert all(piece in text for piece in found)


def test_a_character_comes_out_with_its_last_byte() -> None:
    assert pieces(BYTES, ids("a🧵b")) == ["a", "", "", "", "🧵", "b", ""]


def test_an_incomplete_character_is_replaced_at_the_end() -> None:
    assert pieces(BYTES, [*b"a", 0xF0, 0x9F]) == ["a", "", "", "\ufffd"]


def test_special_and_impossible_tokens_have_no_text(tiny: ServedModel) -> None:
    found = pieces(tiny.tokenizer.token_bytes, [HELLO, END, TOOL, 10**6, -1])
    assert found == ["hello", "", "<tool>", "", "", ""]


def test_the_real_vocabulary_decodes_as_the_reference(real_model: ServedModel, reference: object) -> None:
    table = real_model.tokenizer.token_bytes

    @given(st.lists(st.integers(0, len(table) - 1), max_size=50))
    def check(token_ids: list[int]) -> None:
        decoded = reference.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)  # type: ignore[attr-defined]
        assert "".join(pieces(table, token_ids)) == decoded

    check()


def test_the_real_vocabulary_round_trips(real_model: ServedModel) -> None:
    tokenizer = real_model.tokenizer
    known = {data for data in tokenizer.token_bytes if len(data) == 1}

    def is_expressible(character: str) -> bool:
        """SmolLM2 has no token for 21 of the bytes: some control characters, and parts of planes without text."""
        return all(bytes([byte]) in known for byte in character.encode())

    @given(st.text(st.characters(codec="utf-8").filter(is_expressible), max_size=50))
    @example("👩‍👩‍👧‍👦 家族 한국어 🇨🇭")
    @example("<|im_start|>system\n")
    def check(text: str) -> None:
        token_ids = tokenizer.encode_chat(tokenizer.user_text(text))
        assert "".join(pieces(tokenizer.token_bytes, token_ids)) == text

    check()
