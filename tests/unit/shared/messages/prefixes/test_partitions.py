"""Whose cached blocks are: names of partitions and owners."""

from __future__ import annotations

from hashlib import blake2b
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from gpu_node.engine.memory.prefix import Chains
from shared.config.services.queue import TenantSpec, cache_partition
from shared.messages.prefixes.partitions import owner_of, partition_of
from shared.messages.prefixes.prefixes import chained_digest, name_of, prompt_prefix, root_of

TOKENS = [1, 70_000, 3]
names = st.text(max_size=4)


def by_hand(written: bytes) -> str:
    return blake2b(written, digest_size=16, person=b"treadle cache").hexdigest()


def test_without_tenant_and_salt_it_is_the_one_that_all_share() -> None:
    assert (partition_of("", ""), owner_of("", ""), owner_of("legal", "")) == ("", "", "legal")


def test_a_partition_is_a_digest_of_the_tenant_with_its_length_and_of_the_salt() -> None:
    assert partition_of("", "s") == by_hand(pack("<Q", 0) + b"s") == "984337c3e6ae7622134f110c7435aaca"
    assert partition_of("acme", "") == by_hand(pack("<Q", 4) + b"acme") == "5fffbd1e7da5f742ab0a8b6344b9420d"
    assert partition_of("acme", "é") == by_hand(pack("<Q", 4) + b"acme\xc3\xa9") == "b8040f792bed79a0366a85638da7474e"


@given(st.lists(st.tuples(names, names, st.sampled_from(["", "a", "ab"])), min_size=2, max_size=8, unique=True))
def test_no_two_owners_are_alike(whose: list[tuple[str, str, str]]) -> None:
    """Also where a tenant's name goes on in its salt."""
    owners = [owner_of(adapter, partition_of(tenant, salt)) for tenant, salt, adapter in whose]
    assert len({root_of(owner) for owner in owners}) == len(set(owners)) == len(whose)


def test_blocks_of_an_owner_begin_at_a_root_of_its_own() -> None:
    partition = partition_of("", "s")
    owner = owner_of("legal", partition)
    assert owner == f"legal\0{partition}"
    root = blake2b(b"legal\0" + partition.encode(), digest_size=16).digest()
    first = blake2b(root + pack("<2I", 1, 70_000), digest_size=16).digest()
    assert root_of(owner) == root
    assert chained_digest(root, (1, 70_000)) == first
    prefix = prompt_prefix(TOKENS, 2, owner)
    assert prefix is not None
    assert prefix.names == [(int.from_bytes(first[:8], "little") >> 1) + 1]
    cache = Chains()
    assert prefix.names == [name_of(cache.extend(cache.root_of(owner), (1, 70_000)).digest)], "an engine has the same"


def test_a_tenant_has_a_partition_where_it_is_said_and_its_salts_are_within_it() -> None:
    tenants = {"acme": TenantSpec(cache="own"), "bolt": TenantSpec(cache="own"), "crux": TenantSpec(weight=2)}
    assert {one: cache_partition(tenants, one) for one in ("acme", "bolt", "crux", "default")} == {
        "acme": partition_of("acme", ""),
        "bolt": partition_of("bolt", ""),
        "crux": "",
        "default": "",
    }
    salted = {one: cache_partition(tenants, one, "s") for one in ("acme", "bolt", "crux", "default")}
    assert salted["acme"] == partition_of("acme", "s")
    assert salted["crux"] == salted["default"] == partition_of("", "s"), "who shares shares by salt"
    assert len({*salted.values(), *map(partition_of, ("acme", "bolt"), ("", ""))}) == 5
