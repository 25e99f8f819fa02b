"""Names of beginnings of prompts."""

from __future__ import annotations

from hashlib import blake2b
from struct import pack

from gpu_node.engine.memory.prefix import Chains
from shared.messages.prefixes.prefixes import MAX_NAMES, ROOT, PromptPrefix, chained_digest, name_of, prompt_prefix


def test_a_digest_chains_over_blocks_of_token_ids() -> None:
    first = blake2b(ROOT + pack("<2I", 1, 70_000), digest_size=16).digest()
    assert chained_digest(ROOT, (1, 70_000)) == first
    assert chained_digest(first, (1, 70_000)) == blake2b(first + pack("<2I", 1, 70_000), digest_size=16).digest()


def test_a_name_is_63_bits_and_never_0() -> None:
    assert (name_of(bytes(16)), name_of(b"\xff" * 16), name_of(b"\x05" + bytes(15))) == (1, 2**63, 3)


def test_a_prompt_has_a_name_for_each_block_that_its_last_token_is_not_in() -> None:
    one = chained_digest(ROOT, (1, 2))
    both = chained_digest(one, (3, 4))
    assert prompt_prefix([1, 2], 2) is None
    assert prompt_prefix([1, 2, 3, 4], 2) == PromptPrefix(2, [name_of(one)])
    assert prompt_prefix([1, 2, 3, 4, 5], 2) == PromptPrefix(2, [name_of(one), name_of(both)])


def test_a_long_prompt_has_few_names_further_apart() -> None:
    """70 blocks: every third one has a name, 23 in all; the last one is not named."""
    token_ids = list(range(141))
    prefix = prompt_prefix(token_ids, 2)
    assert prefix is not None
    assert (prefix.every_tokens, len(prefix.names), prefix.tokens(23)) == (6, 23, 138)
    assert len(prefix.names) <= MAX_NAMES
    assert prefix.names[:2] == every_name(token_ids, 2)[2:6:3]


def test_an_engine_has_the_same_names() -> None:
    token_ids = [5, 9, 5, 9, 7]
    cache = Chains()
    first = cache.extend(cache.root, (5, 9))
    second = cache.extend(first, (5, 9))
    prefix = prompt_prefix(token_ids, 2)
    assert prefix is not None
    assert prefix.names == [name_of(first.digest), name_of(second.digest)]


def every_name(token_ids: list[int], size: int) -> list[int]:
    digest, names = ROOT, []
    for start in range(0, len(token_ids) - size, size):
        digest = chained_digest(digest, token_ids[start : start + size])
        names.append(name_of(digest))
    return names
