"""Groups of devices as one node: rates and memory of all, what collectives take, and pipelines of groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.pipeline.operators.setting import Setting
from services.pipeline.reports.search_report import pipeline_file
from services.pipeline.search.search import QUICK, search
from services.simulator.devices.catalogue import device, with_pipeline
from services.simulator.devices.device_group import group_named
from shared.config.hardware import LINK_EFFICIENCY, UnknownHardwareError, model_named, step_cost
from shared.config.pipelines.pipeline_file import PUBLISHED
from shared.pipelines.batch import DenseBatch, MeanLengths
from shared.pipelines.machine import machine

MODEL = model_named("llama-2-70b")


def test_eight_devices_are_eight_times_as_fast_but_for_what_they_tell_one_another() -> None:
    one, eight = (group_named(kind) for kind in ("a100", "a100x8"))
    assert (eight.device, eight.num_devices) == ("a100", 8)
    alone, together = step_cost(one.sheet, MODEL), eight.step_cost(MODEL)
    assert together.context_token_s == pytest.approx(alone.context_token_s / 8)
    # of a row and layer 4 x 8,192 numbers of two bytes to seven others each, over eight links of 300 GB/s
    net_s = 4 * 7 * 8192 * 2 * 80 / (8 * 300e9) / LINK_EFFICIENCY
    assert together.token_s == pytest.approx(alone.token_s / 8 + net_s)
    assert one.step_cost(MODEL) == alone


def test_what_fits_no_device_alone_fits_a_group() -> None:
    assert device("a100", ["llama-2-70b"]).models == {}
    assert device("a100x8", ["llama-2-70b"]).models["llama-2-70b"].kv_cache_bytes > 300e9


def test_devices_without_links_make_no_groups() -> None:
    with pytest.raises(UnknownHardwareError, match="no device 'a10x8' is known"):
        group_named("a10x8")


def test_a_group_runs_the_pipeline_of_its_size_and_no_other() -> None:
    group, batch = machine("a100", 8), DenseBatch(2048, MeanLengths(512, 1024))
    budget = replace(QUICK, num_plays=1_500, structure_s=0.0, allocation_s=0.0)
    found = search(Setting.published(group, MODEL, batch), budget, lambda: 0.0)
    file = pipeline_file(found, group, MODEL, batch, PUBLISHED)
    eight, four = device("a100x8", ["llama-2-70b"]), device("a100x4", ["llama-2-70b"])
    assert with_pipeline(four, file) is four
    plain, piped = (one.models["llama-2-70b"] for one in (eight, with_pipeline(eight, file)))
    assert piped.pipeline is not None
    assert piped.pipeline.planned_tokens == pytest.approx(batch.decode_tokens, rel=0.01)
    size = 2048, batch.decode_tokens, 0.0
    # as long a step as was searched for is as much shorter as the layer is, but for the ends of the first and the last
    assert piped.predict_s(*size) / plain.predict_s(*size) == pytest.approx(file.layer_s / file.sequential_s, rel=0.02)
    assert piped.predict_s(2047, *size[1:]) == plain.predict_s(2047, *size[1:])
