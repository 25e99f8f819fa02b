"""Prefixes: equal ones are one object while anybody has them, whatever their digests."""

from __future__ import annotations

from gpu_node.engine.memory.prefix import Chains, is_same
from shared.messages.prefixes.prefixes import chained_digest, root_of


def test_equal_prefixes_are_one_object() -> None:
    chains = Chains()
    one = chains.extend(chains.extend(chains.root, (1, 2)), (3, 4))
    assert chains.extend(chains.extend(chains.root, (1, 2)), (3, 4)) is one
    assert chains.extend(chains.extend(chains.root, (1, 9)), (3, 4)) is not one


def test_of_two_with_one_digest_both_are_what_they_are() -> None:
    chains = Chains(lambda parent, token_ids: b"same")
    one, other = chains.extend(chains.root, (1,)), chains.extend(chains.root, (2,))
    again = chains.extend(chains.root, (1,))
    assert (one.token_ids, other.token_ids) == ((1,), (2,))
    assert is_same(again, one)
    assert not is_same(other, one)


def test_nobody_s_prefixes_are_forgotten() -> None:
    chains = Chains()
    chains.extend(chains.root, (1,))
    assert len(chains._known) == 0


def test_an_adapter_s_prefixes_are_its_own() -> None:
    chains = Chains()
    roots = [chains.root_of(name) for name in ("", "legal", "rhymes")]
    assert roots[0] is chains.root
    assert chains.root_of("legal") is roots[1]
    ends = [chains.extend(chains.extend(root, (1, 2)), (3, 4)) for root in roots]
    assert len({end.digest for end in ends}) == 3
    assert not any(is_same(one, other) for one in ends for other in ends if one is not other)
    assert [end.digest for end in ends] == [
        chained_digest(chained_digest(root_of(name), (1, 2)), (3, 4)) for name in ("", "legal", "rhymes")
    ]


def test_owners_are_forgotten_with_the_last_of_their_prefixes() -> None:
    """A salt may come once and never again."""
    chains = Chains()
    kept = chains.extend(chains.root_of("kept"), (1, 2))
    for number in range(100):
        chains.extend(chains.root_of(f"salt {number}"), (1, 2))
    assert sorted(chains._roots) == ["", "kept"]
    assert chains.extend(chains.root_of("kept"), (1, 2)) is kept


def test_digests_that_are_the_same_do_not_mix_adapters_up() -> None:
    chains = Chains(lambda parent, token_ids: b"same")
    own, adapted = (chains.extend(chains.root_of(name), (1,)) for name in ("", "legal"))
    assert not is_same(own, adapted)
