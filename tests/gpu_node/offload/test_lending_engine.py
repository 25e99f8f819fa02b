"""What an engine tells of the pages that it could lend, and what becomes of lent ones when it needs them.

Eight pages of 21 blocks of 16 tokens; a sequence of full length has 48 tokens, so 3 blocks.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_node.engine.engine import Engine
from gpu_node.engine.process.commands.link_commands import LinkCommands
from gpu_node.engine.process.protocol.link_protocol import LendPages, LinkRefused, PagesLent
from gpu_node.engine.process.protocol.protocol import EngineEvent, StepReport
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.predicted.executor import PredictedExecutor
from shared.config.engines.engine import ModelSpec
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Payload, Sampling
from tests.gpu_node import tiny
from tests.gpu_node.models.test_families_models import save
from tests.gpu_node.offload.test_woven_engines import MAX_MODEL_LEN, RECEIVER, SENDER, requests, spec
from tests.gpu_node.offload.weaving import LINK, MODEL, Weaving, engine_of

PAGE_BYTES = 2 << 20


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large")
    save("llama", path, num_hidden_layers=6, num_key_value_heads=4, head_dim=64)
    return path


@pytest.fixture
def both(stack: ExitStack, tmp_path: Path, path: Path) -> Weaving:
    return Weaving(stack, tmp_path, spec(path), sender=SENDER, receiver=RECEIVER)


def room(engine: Engine) -> tuple[int, int, int]:
    stats = engine.stats()
    return stats.page_bytes, stats.num_spare_pages, stats.num_missing_pages


def long_request(number: int) -> Payload:
    """33 tokens and at most 15 more: 3 blocks at its end."""
    sampling = Sampling(max_tokens=15, ignore_eos=True)
    return Payload(str(number), 0, "g", MODEL, [3 + number] * 33, sampling)


def test_an_idle_engine_keeps_room_for_two_requests_of_full_length(both: Weaving) -> None:
    assert room(both.cold) == (PAGE_BYTES, 7, 0), "they have 6 blocks, in one page"
    both.cold.offload.lend(LINK, 3)
    assert room(both.cold) == (PAGE_BYTES, 4, 0)
    both.cold.offload.lend(LINK, 4)
    assert room(both.cold) == (PAGE_BYTES, 0, 0)


def test_pages_are_missing_as_soon_as_its_own_requests_are_expected_to_need_them(both: Weaving) -> None:
    pages = both.cold.offload.lend(LINK, 7)
    for number in range(8):
        both.cold.add(long_request(number))
    # 8 x (33 + 14 + 15 of a last block) tokens are 31 blocks, one typical request has 3: 34 blocks in two pages
    assert room(both.cold) == (PAGE_BYTES, 0, 1)
    both.cold.offload.take_back(LINK, pages[:1])
    assert room(both.cold) == (PAGE_BYTES, 0, 0)
    both.cold.reset()
    assert room(both.cold) == (PAGE_BYTES, 1, 0)


def test_who_has_no_place_for_more_requests_keeps_no_room_for_them(
    stack: ExitStack, tmp_path: Path, path: Path
) -> None:
    receiver = replace(RECEIVER, max_num_seqs=5)
    cold = Weaving(stack, tmp_path, spec(path), sender=SENDER, receiver=receiver).cold
    for number in range(5):
        cold.add(long_request(number))
    # 5 x 62 tokens are 19 blocks: with one request more they would not be in one page
    assert room(cold) == (PAGE_BYTES, 7, 0)


def test_an_engine_without_links_lends_nothing() -> None:
    cost = StepCost(1.0, 0.0, 0.0)
    predicted = Engine(PredictedExecutor(cost, RECEIVER, token_kv_bytes=8192, vocab_size=256), RECEIVER)
    predicted.load_model(ModelSpec(name="m", source="none", max_model_len=64))
    assert room(predicted) == (0, 0, 0)


def test_an_engine_without_a_model_lends_nothing(stack: ExitStack, tmp_path: Path) -> None:
    executor = stack.enter_context(closing(CpuExecutor(RECEIVER, 1, link_folder=tmp_path)))
    assert room(Engine(executor, RECEIVER)) == (0, 0, 0), "nobody knows what its first one will need"


def test_an_engine_whose_offload_is_off_lends_nothing(stack: ExitStack, tmp_path: Path, path: Path) -> None:
    off = replace(RECEIVER, offload="off", max_models=2)
    assert room(engine_of(stack, tmp_path, spec(path), off)) == (0, 0, 0)


def test_who_hears_which_pages_are_lent_has_heard_that_they_are_not_spare(both: Weaving) -> None:
    told: list[EngineEvent] = []
    LinkCommands(both.cold, told.append).carry_out(LendPages(LINK, 2))
    report, lent = told
    assert isinstance(report, StepReport)
    assert report.stats.num_spare_pages == 5
    assert lent == PagesLent(LINK, [0, 1])


def test_a_model_that_is_loaded_takes_the_pages_that_it_has_a_right_to(
    stack: ExitStack, tmp_path: Path, path: Path
) -> None:
    receiver = replace(RECEIVER, max_models=2)
    both = Weaving(stack, tmp_path, spec(path), sender=SENDER, receiver=receiver)
    alone = tiny.run(both.hot, requests())
    assert len(both.lend(7, 1.0)) == 7, "one is the loaded model's by right"

    def happen(step: int) -> None:
        if step == 6:
            both.cold.load_model(ModelSpec(name="other", source=str(path), max_model_len=MAX_MODEL_LEN))

    assert both.run(requests(), happen) == alone
    assert both.num_lost > 0, "they were remote when their receiver left"
    assert both.cold.tiers == {MODEL: "device", "other": "device"}, "no model had to go for it"
    told: list[EngineEvent] = []
    LinkCommands(both.cold, told.append).tell_news()
    assert told == [LinkRefused(LINK, "'other' was loaded, and needs the pages")]
    assert list(both.cold.offload.news()) == [], "told once"
    assert both.cold.offload.take_for("another") is False, "nothing is lent any more"


def test_what_an_earlier_link_lost_is_not_told_again(both: Weaving) -> None:
    both.lend(3, 1.0)

    def happen(step: int) -> None:
        if step == 6:
            both.cold.offload.close(LINK)

    both.run(requests(), happen)
    assert both.num_lost > 0
    both.hot.offload.close(LINK)
    both.connect()
    assert both.take_news() == []
    assert both.hot.counts.num_lost_remote == both.num_lost
    assert both.cold.counts.num_served_tasks == both.num_served > 0
