"""Tests of tests/e2e, asked of nodes with vLLM: those to which it makes a difference who computes."""

from __future__ import annotations

import openai
import pytest
from openai import AsyncOpenAI

from tests.e2e.cluster import Cluster
from tests.e2e.test_answers import *  # noqa: F403 - each of its tests
from tests.e2e.test_deaths import *  # noqa: F403
from tests.e2e.test_disconnect import *  # noqa: F403
from tests.e2e.test_observability import *  # noqa: F403
from tests.e2e.traffic import PROMPTS

del test_beams_are_different_answers_the_likeliest_first  # noqa: F821 - it is one of all above
del test_of_equal_prompts_one_lies_in_a_cache  # noqa: F821 - vLLM's blocks on processors are longer than the prompts
del test_logs_are_json_and_hold_no_secret  # noqa: F821 - Python's tracker of a killed process's shared memory writes text


async def test_beams_are_refused_by_name_where_no_node_has_them(client: AsyncOpenAI, cluster: Cluster) -> None:
    with pytest.raises(openai.BadRequestError, match="beam search"):
        await client.completions.create(
            model=cluster.models[0], prompt=PROMPTS[0], max_tokens=4, n=2, extra_body={"use_beam_search": True}
        )
