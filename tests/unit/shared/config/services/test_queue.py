"""Which operations a policy gets, and what is said where it is to get one that it has no use for."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from shared.config.config import parse_config
from shared.config.reading.files import ConfigError
from shared.config.services.policies import POLICY_RULES
from shared.config.services.queue import OperationOptions, QueueOptions


def used(policy: str, **asked: bool) -> list[str]:
    options = QueueOptions.model_validate({"policy": policy, "operations": asked})
    return [name for name in OperationOptions.model_fields if options.uses(name)]  # type: ignore[arg-type]


def test_a_policy_gets_every_operation_that_it_has_a_use_for() -> None:
    everything = list(OperationOptions.model_fields)
    assert used("qlm") == used("edf-affine") == everything
    assert used("edf") == [name for name in everything if name != "rescue"]
    assert used("shepherd") == ["balance", "swap", "pace", "immediate", "overtake", "warm", "fetch", "read_ahead"]
    assert used("fcfs") == ["balance", "swap", "immediate", "warm", "fetch", "read_ahead"]


def test_each_is_a_switch_of_any_policy() -> None:
    for policy, rules in POLICY_RULES.items():
        for name in OperationOptions.model_fields:
            assert name not in used(policy, **{name: False})
            if name not in rules.no_use:
                assert used(policy, **{name: True}) == used(policy)


def test_an_operation_without_a_use_is_an_error_and_all_are_told_at_once() -> None:
    with pytest.raises(ValidationError) as raised:
        QueueOptions.model_validate({"policy": "fcfs", "operations": {"pace": True, "evict": True, "rescue": False}})
    text = str(raised.value)
    assert "operations.evict: 'fcfs' has no use for it (nothing that comes later goes ahead)" in text
    assert "operations.pace: 'fcfs' has no use for it" in text
    assert "operations.rescue" not in text


def test_a_file_with_one_names_its_place() -> None:
    with pytest.raises(ConfigError, match=r"queue: .*operations\.pace: 'fcfs' has no use for it"):
        parse_config("queue: {policy: fcfs, operations: {pace: true}}", "cluster.yaml")


def test_no_node_reads_in_other_nodes_caches_where_it_is_not_known_what_is_there() -> None:
    assert "fetch" in used("qlm", warm=False), "of no effect"
    with pytest.raises(ValidationError, match=r"operations\.fetch: what nodes have cached is not known without warm"):
        used("qlm", warm=False, fetch=True)
