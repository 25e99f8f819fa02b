"""Tests of tests/e2e, asked of nodes with vLLM: those to which it makes a difference who computes."""

from __future__ import annotations

import openai
import pytest
from openai import AsyncOpenAI

from tests.e2e.cluster import Cluster
from tests.e2e.test_answers import *  # noqa: F403 - each of its tests
from tests.e2e.test_deaths import (
    test_a_frozen_node_is_declared_dead_and_fenced_when_it_wakes,
    test_a_node_dies_and_the_other_one_serves_both_models,
    test_all_services_die_at_once,
    test_the_engine_dies_and_the_agent_begins_anew,
)
from tests.e2e.test_disconnect import *  # noqa: F403
from tests.e2e.test_observability import *  # noqa: F403
from tests.e2e.traffic import PROMPTS

__all__ = [
    "test_a_frozen_node_is_declared_dead_and_fenced_when_it_wakes",
    "test_a_node_dies_and_the_other_one_serves_both_models",
    "test_all_services_die_at_once",
    "test_the_engine_dies_and_the_agent_begins_anew",
]


async def test_beams_are_different_answers_the_likeliest_first(client: AsyncOpenAI, cluster: Cluster) -> None:
    """No: no node here has them, so they are refused by name."""
    with pytest.raises(openai.BadRequestError, match="beam search"):
        await client.completions.create(
            model=cluster.models[0], prompt=PROMPTS[0], max_tokens=4, n=2, extra_body={"use_beam_search": True}
        )
