"""Prefixes: equal ones are one object while anybody has them, whatever their digests."""

from __future__ import annotations

from gpu_node.engine.memory.prefix import Chains, is_same


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
