"""Two engines on one device, each in a process of its own: the attention of one runs in the other one's memory.

Tokens of tiny models have to be those of home. Then Llama 3 8B's shape, with a quarter of its layers, by MPS: an engine
whose memory is full decodes more requests at a time when another lends it room (Weaver, ATC'25, §6.2). Both share one
device's processors and bandwidth, so two devices would win more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from time import sleep
from typing import Literal

import torch
from decodes import DecodeLoad
from equality import ROOMY, answers_of, parting_of, waves_of
from lender import Lender, lender
from line import Line
from models import FAMILIES, LLAMA_3_8B, dummy
from mps import PERCENTAGE, sharing
from woven_engine import LINK, EngineOf

from gpu_node.engine.engine import Engine
from gpu_node.engine.offload.offloading import RemoteLost
from shared.config.engines.engine import EngineOptions, ModelSpec

Form = Literal["off", "on", "ahead"]
"""Of `EngineOptions.offload`."""
EQUAL: tuple[tuple[str, Form, float], ...] = (("llama", "on", 0.4), ("llama", "ahead", 1.0), ("mistral", "on", 1.0))
"""Families, forms, and the share of requests that is remote."""
INTERPRETED_EQUAL = EQUAL[:1]
LENT_PAGES = 2
LENDER_BYTES, LENDER_BLOCK_SIZE = 16 << 20, 16
"""Its own blocks are of another size than those that lie with it."""
NUM_LAYERS = 8
PROMPT_TOKENS, OUTPUT_TOKENS = 1024, 512
NUM_HOME, NUM_AWAY, NUM_COLD = 32, 64, 8
"""Requests that there is memory for at home, that are lent room for, and of the lending engine."""
LENT_ROOM = NUM_AWAY + 2 * NUM_COLD
KV_BYTES_PER_TOKEN = 2 * NUM_LAYERS * 8 * 128 * 2
AWAY_ALONE = (1, 2, 8, 16)
"""Requests that decode with none at home."""
ROOM = 1.1
"""Of what requests need, for blocks that are not full."""
NUM_STEPS = 60
COLD_ALONE_S = 0.3
GAIN_GOAL = 1.6
"""As on CPU devices (`treadle bench offload`)."""
LENDERS_PERCENT = 50
"""Of the processors: its polls would leave none free, and products of the other engine need whole ones."""


def check_woven(device: torch.device, _: Mapping[str, float], _share: int, _num_shares: int) -> Iterator[Line]:
    """Tokens, then times where the device has MPS: in a process of its own, for the service waits for its end."""
    with tempfile.TemporaryDirectory() as name, sharing(Path(name)) as environment:
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, __file__, str(device), *["--times"] * bool(environment)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **paths, **environment}
        ) as process:
            assert process.stdout is not None
            for text in process.stdout:
                yield Line(**json.loads(text))
        if process.returncode:
            raise RuntimeError(f"the engine that asks ended with {process.returncode}")


def _lines(device: torch.device, *, has_times: bool) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for family, form, ratio in EQUAL if device.type == "cuda" else INTERPRETED_EQUAL:
            yield _compare(family, form, ratio, folder, device)
        if has_times:
            yield from _measure(folder, device)


def _compare(family: str, form: Form, ratio: float, folder: Path, device: torch.device) -> Line:
    is_short = device.type == "cpu"
    spec = dummy(family, FAMILIES[family], folder)
    options = replace(ROOMY, offload=form)
    home = EngineOf(spec, options, folder, str(device), "float32")
    lending = replace(home, options=replace(options, kv_cache_bytes=LENDER_BYTES, block_size=LENDER_BLOCK_SIZE))
    hot = home.make()
    waves = waves_of(spec, is_short=is_short)
    expected = answers_of(hot, waves)
    hot.reset()
    with lender(lending, {}) as cold:
        _link(hot, cold, spec, LENT_PAGES, ratio)
        found = answers_of(hot, waves)
        num_served = cold.ask("served")["num_served"]
        partings = {name: parting_of(heard, expected[name]) for name, heard in found.items()}
    hot.offload.close(LINK)
    wrong = [f"{name[0]}.{name[1]}" for name, parting in partings.items() if parting == "wrong"]
    if not num_served or found.keys() != expected.keys():
        wrong.append("nothing was served, or choices are missing")
    note = f"of {len(found)}; {num_served} tasks served{': wrong: ' + ', '.join(wrong) if wrong else ''}"
    what = f"{family}, offload {form}, {ratio:.0%} of the requests elsewhere"
    return Line(what, len(wrong), "wrong", note, at_most=0.0, is_required=True)


def _measure(folder: Path, device: torch.device) -> Iterator[Line]:
    spec = dummy("quarter", {**LLAMA_3_8B, "num_hidden_layers": NUM_LAYERS}, folder, PROMPT_TOKENS + OUTPUT_TOKENS)
    request_bytes = int(ROOM * KV_BYTES_PER_TOKEN * (PROMPT_TOKENS + OUTPUT_TOKENS))
    options = EngineOptions(
        max_num_seqs=NUM_HOME + NUM_AWAY,
        step_tokens=2048,
        host_models=0,
        offload="on",
        kv_cache_bytes=NUM_HOME * request_bytes,
    )
    home = EngineOf(spec, options, folder, str(device), "bfloat16")
    hot = home.make()
    for num in (*AWAY_ALONE, NUM_HOME):
        home_s = _decode(hot, spec, num).steps_s(NUM_STEPS)
        yield Line(f"decode step of {num}", 1e3 * home_s, "ms")
    lending = replace(home, options=replace(options, kv_cache_bytes=LENT_ROOM * request_bytes))
    with lender(lending, {PERCENTAGE: str(LENDERS_PERCENT)}) as cold:
        page_bytes = _link(hot, cold, spec, 0, 1.0)
        _grant(hot, cold, -(-NUM_AWAY * request_bytes // page_bytes))
        for num in AWAY_ALONE:
            step_s = _decode(hot, spec, num).steps_s(NUM_STEPS)
            yield Line(f"decode step of {num}, all attention elsewhere", 1e3 * step_s, "ms")
        hot.offload.set_ratio(LINK, NUM_AWAY / (NUM_HOME + NUM_AWAY))
        yield from _woven(_decode(hot, spec, NUM_HOME + NUM_AWAY), home_s, cold)
        num_lost = sum(one.num_requests for one in hot.offload.news() if isinstance(one, RemoteLost))
        yield Line("requests lost and computed again", num_lost, "", at_most=0, is_required=True)
    hot.offload.close(LINK)


def _woven(hot: DecodeLoad, home_s: float, cold: Lender) -> Iterator[Line]:
    what, num = f"decode step of {NUM_HOME + NUM_AWAY}, {NUM_AWAY} elsewhere", NUM_HOME + NUM_AWAY
    idle_s = hot.steps_s(NUM_STEPS)
    yield Line(what, 1e3 * idle_s, "ms")
    yield Line("tokens a second beside home", num / idle_s * home_s / NUM_HOME, "x", at_least=GAIN_GOAL)
    cold.ask("decode", num=NUM_COLD, prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS)
    cold.ask("step_s")
    sleep(COLD_ALONE_S)
    cold_s = cold.ask("step_s")["step_s"]
    busy_s = hot.steps_s(NUM_STEPS)
    beside_s = cold.ask("step_s")["step_s"]
    yield Line(f"{what}, who decode {NUM_COLD} of their own", 1e3 * busy_s, "ms")
    yield Line("tokens a second beside home, then", num / busy_s * home_s / NUM_HOME, "x")
    yield Line("the lending engine's step", beside_s / cold_s, "x", f"{1e3 * cold_s:.2f} ms alone")


def _decode(engine: Engine, spec: ModelSpec, num: int) -> DecodeLoad:
    """So many requests, all of which decode, instead of those before."""
    engine.reset()
    load = DecodeLoad(engine, spec.name, num, PROMPT_TOKENS, OUTPUT_TOKENS)
    load.fill()
    load.steps_s(NUM_STEPS // 4)  # what is compiled and captured first
    return load


def _link(hot: Engine, cold: Lender, spec: ModelSpec, num_pages: int, ratio: float) -> int:
    """Bytes of a page that is lent."""
    cold.receive(hot.make_link(LINK, spec.name))
    page_bytes = _grant(hot, cold, num_pages)
    hot.offload.set_ratio(LINK, ratio)
    return page_bytes


def _grant(hot: Engine, cold: Lender, num_pages: int) -> int:
    lent = cold.ask("lend", num_pages=num_pages)
    if len(lent["pages"]) < num_pages:
        raise RuntimeError(f"{len(lent['pages'])} of {num_pages} pages are lent")
    page_bytes = int(lent["page_bytes"])
    hot.offload.grant(LINK, lent["pages"], page_bytes)
    return page_bytes


if __name__ == "__main__":
    for line in _lines(torch.device(sys.argv[1]), has_times="--times" in sys.argv[2:]):
        print(json.dumps(asdict(line)), flush=True)
