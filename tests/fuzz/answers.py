"""Stop strings and detokenising against plain models: the definition, applied to the whole text at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from gateway.generation.detokenizer import Detokenizer
from gateway.generation.stop_strings import StopMatcher, StopPattern
from tests.fuzz.mutators import mutated_bytes
from tests.fuzz.target import Target, rule

_BORDER = b"\xff"
_ALPHABETS = ("ab", "abc\u00e9", "ab\n \u7e54\U0001f9f5")
"""Few letters, so that beginnings of stop strings come often."""
MAX_CHARACTERS = 400
MAX_STOPS = 16
_BYTES = [bytes([byte]) for byte in range(256)]


def naive_stop(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The first position where a stop string ends, cut before the longest one that ends there."""
    for end in range(1, len(text) + 1):
        ending = [len(stop) for stop in stops if text.endswith(stop, 0, end)]
        if ending:
            return text[: end - max(ending)], True
    return text, False


def naive_held(text: str, stops: Sequence[str]) -> str:
    """The longest end of a text that a stop string begins with."""
    ends = (stop[:length] for stop in stops for length in range(1, len(stop)) if text.endswith(stop[:length]))
    return max(ends, key=len, default="")


def _parsed(data: bytes) -> tuple[str, list[str], list[int]]:
    """Text, stop strings, and how long the pieces are in which the text comes."""
    alphabet = _ALPHABETS[data[0] % len(_ALPHABETS)] if data else "a"
    cuts, text, *stops = [*data[1:].split(_BORDER), b"", b""][: MAX_STOPS + 2]
    letters = [alphabet[byte % len(alphabet)] for byte in text[:MAX_CHARACTERS]]
    found = ["".join(alphabet[byte % len(alphabet)] for byte in stop[:32]) for stop in stops]
    return "".join(letters), [stop for stop in found if stop], [byte % 9 for byte in cuts] or [1]


def _pieces(text: str, cuts: Sequence[int]) -> Iterator[str]:
    """Pieces of the lengths ``cuts``, over and over; some are empty."""
    start, number = 0, 0
    while start < len(text):
        length = cuts[number % len(cuts)] if number < 4 * len(text) else 1
        yield text[start : start + length]
        start, number = start + length, number + 1


def _check_stops(data: bytes) -> bool:
    text, stops, cuts = _parsed(data)
    matcher = StopMatcher([StopPattern(one) for one in stops])
    out, fed, is_stopped = "", "", False
    for piece in _pieces(text, cuts):
        new, is_stopped = matcher.feed(piece)
        out, fed = out + new, fed + piece
        if is_stopped:
            break
        rule(out + naive_held(fed, stops) == fed, "only the longest beginning of a stop string is held back")
    if not is_stopped:
        out += matcher.flush()
    rule((out, is_stopped) == naive_stop(text, stops), "pieces give what the whole text gives")
    return is_stopped


def _stops() -> Sequence[bytes]:
    return [
        b"\x00\x01\x02\xffabababbabaabbab\xffabb\xffbab",
        b"\x01\x03\x00\x01\xffaaaaaaaaaaaaaab\xffaab\xffaaaaab\xffb",
        b"\x02\x07\xffyes.\nUser: and\xff\nUser:\xff\nU",
        b"\x00\x01\xffabab\xffbb",
        b"\x01\x02",
    ]


def mutated_stops(data: bytes, corpus: Sequence[bytes], rng: Random) -> bytes:
    """Neighbours, and as often a text made from beginnings of its stop strings."""
    if rng.random() < 0.5:
        return mutated_bytes(data, corpus, rng)
    size = rng.randint(1, 4)
    stops = [bytes(rng.choices(b"abcdef", k=rng.randint(1, 8))) for _ in range(size)]
    parts = [stop[: rng.randint(0, len(stop))] for stop in rng.choices(stops, k=rng.randint(0, 12))]
    cuts = bytes(rng.choices(range(9), k=rng.randint(1, 4)))
    return bytes([rng.randrange(3)]) + _BORDER.join([cuts, b"".join(parts), *stops])


def _check_detokenizer(data: bytes) -> bool:
    """Bytes are cut into tokens by their own values; a character is never split, and nothing is lost."""
    table = [*_BYTES, *(data[start : start + 1 + start % 5] for start in range(0, len(data), 3))]
    token_ids = [*data, *range(256, len(table)), len(table) + 7, -1]
    detokenizer = Detokenizer(table)
    texts = [detokenizer.feed(token_id) for token_id in token_ids]
    is_amid = detokenizer.is_amid_character
    last = detokenizer.flush()
    whole = b"".join(table[token_id] for token_id in token_ids[:-2])
    rule("".join(texts) + last == whole.decode(errors="replace"), "tokens one by one give the text of all their bytes")
    rule(bool(last) == is_amid, "something is left only inside a character")
    return "\ufffd" not in last


def _texts() -> Sequence[bytes]:
    texts = ["hello", "\U0001f9f5 \u7e54\u7dad \u05e9\u05dc\u05d5\u05dd \u00e9", "", "a\u00e9b\U0010ffff"]
    return [*(text.encode() for text in texts), b"\xf0\x9f\xa7", b"\xe2\x28\xa1", b"\xed\xa0\x80x", b"\xc0\x80\xff"]


TARGETS = [
    Target("stop strings", _stops, _check_stops, mutated_stops, share=70),
    Target("detokenizer", _texts, _check_detokenizer, is_guided=False, share=60),
]
