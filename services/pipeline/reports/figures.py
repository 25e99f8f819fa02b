"""NanoFlow's figures as predicted here, beside the paper's: what `treadle bench pipeline --predicted` tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from services.pipeline.operators.setting import Setting
from services.pipeline.reports.cost_report import measured_flops_per_s, model_parameters
from services.pipeline.reports.prediction import PredictedThroughput, dense_batch, head_s, num_tokens, throughput
from services.pipeline.search.ceiling import ceilings
from services.pipeline.search.search import Found, SearchBudget, add_copies, refine, search
from shared.config.hardware import ModelShape, model_named
from shared.pipelines.batch import DenseBatch, MeanLengths
from shared.pipelines.cost import memory_ratio, network_ratio, operator_costs
from shared.pipelines.machine import ACCELERATORS, machine
from shared.pipelines.paper import (
    CONSTANT_LENGTHS,
    FIGURE_2,
    FIGURE_3,
    FIGURE_3_ORDER,
    FIGURE_7,
    FIGURE_9,
    FIGURE_9_LENGTHS,
    FIGURE_11,
    LAYER_S,
    TABLE_2_LENGTHS,
    TABLE_2_ROWS,
    TRACE_LENGTHS,
)

_LENGTHS = {**CONSTANT_LENGTHS, **TRACE_LENGTHS}
_70B = "llama-2-70b"


@dataclass(slots=True)
class Searches:
    """Pipelines by what they are for; each is searched once."""

    budget: SearchBudget
    now: Callable[[], float]
    done: Callable[[int], None]
    """Hears how many there are."""
    _found: dict[tuple[str, int, DenseBatch, bool], Found] = field(default_factory=dict)
    _refined: dict[tuple[str, int, DenseBatch, bool], Found] = field(default_factory=dict)

    def refined(self, model: ModelShape, num: int, batch: DenseBatch) -> Found:
        """The plain pipeline, searched as long as the one with copies that stands beside it."""
        key = (model.name, num, batch, False)
        if key not in self._refined:
            setting = Setting.published(machine("a100", num), model, batch)
            found = self.find(model, num, batch, is_offloaded=False)
            self._refined[key] = refine(found, setting, self.budget, self.now)
        return self._refined[key]

    def find(self, model: ModelShape, num: int, batch: DenseBatch, *, is_offloaded: bool) -> Found:
        """The pipeline of a model on so many A100."""
        key = (model.name, num, batch, is_offloaded)
        if key not in self._found:
            setting = Setting.published(machine("a100", num), model, batch)
            if is_offloaded:
                plain = self.find(model, num, batch, is_offloaded=False)
                self._found[key] = add_copies(plain, setting, self.budget, self.now)
            else:
                self._found[key] = search(setting, self.budget, self.now)
            self.done(len(self._found))
        return self._found[key]


NUM_SEARCHES = 2 * len(FIGURE_9) + 2 * len(TRACE_LENGTHS) + len(FIGURE_11)


def figures(budget: SearchBudget, now: Callable[[], float], done: Callable[[int], None]) -> dict[str, Any]:
    """All of them."""
    searches = Searches(budget, now, done)
    return {
        "fig2": _figure_2(),
        "fig3": _figure_3(),
        "fig7": {
            name: {"ours": _throughput(searches, _70B, 8, _LENGTHS[name], is_offloaded=True).pipeline, "paper": paper}
            for name, paper in FIGURE_7.items()
        },
        "fig9": {name: _figure_9(searches, name) for name in FIGURE_9},
        "fig10": _figure_10(searches),
        "fig11": {
            model: {
                "ours": _throughput(searches, model, num, _LENGTHS["1024-512"], is_offloaded=False).pipeline,
                "paper": paper,
            }
            for (model, num), paper in FIGURE_11.items()
        },
        "ceilings": {
            "fig9": {name: _ceiling(_70B, 8, lengths) for name, lengths in FIGURE_9_LENGTHS.items()},
            "fig11": {model: _ceiling(model, num, _LENGTHS["1024-512"]) for model, num in FIGURE_11},
        },
    }


def _figure_2() -> dict[str, Any]:
    """Network : compute of eight devices, by device and model; the paper's labels are those of the A100."""
    found: dict[str, Any] = {
        device: {
            name: network_ratio(machine(device, 8), model_named(name), model_parameters(model_named(name)))
            for name in FIGURE_2
        }
        for device in ACCELERATORS
    }
    return {"ours": found, "paper": {"a100": FIGURE_2}}


def _figure_3() -> dict[str, Any]:
    """T_R on A100."""
    found = {}
    for (name, num), paper in FIGURE_3.items():
        model = model_named(name)
        ours = {
            lengths: memory_ratio(machine("a100", num), model, _LENGTHS[lengths], model_parameters(model))
            for lengths in FIGURE_3_ORDER
        }
        found[name] = {"ours": ours, "paper": dict(zip(FIGURE_3_ORDER, paper, strict=True))}
    return found


def _throughput(
    searches: Searches, name: str, num: int, lengths: MeanLengths, *, is_offloaded: bool
) -> PredictedThroughput:
    model, group = model_named(name), machine("a100", num)
    batch = dense_batch(group, model, lengths)
    return throughput(searches.find(model, num, batch, is_offloaded=is_offloaded), group, model, batch)


def _ceiling(name: str, num: int, lengths: MeanLengths) -> dict[str, float]:
    """What no pipeline is above, by the times and the interference that all of this rests on."""
    model, group = model_named(name), machine("a100", num)
    batch = dense_batch(group, model, lengths)
    setting = Setting.published(group, model, batch)
    behind_s, layers = head_s(group, model, batch), model.num_layers
    whole_s, halves_s = ceilings(setting)
    tokens = num_tokens(group, model, batch) / num
    sequential_s = layers * setting.sequential_s + behind_s
    return {
        "tok_s": tokens / (layers * whole_s + behind_s),
        "ratio": sequential_s / (layers * whole_s + behind_s),
        "tok_s_in_halves": tokens / (layers * halves_s + behind_s),
        "ratio_in_halves": sequential_s / (layers * halves_s + behind_s),
    }


def _figure_9(searches: Searches, name: str) -> dict[str, Any]:
    """The ablation: throughput of four ways, and the ratios of the labels."""
    model, group = model_named(_70B), machine("a100", 8)
    batch = dense_batch(group, model, FIGURE_9_LENGTHS[name])
    plain = throughput(searches.refined(model, 8, batch), group, model, batch)
    offloaded = _throughput(searches, _70B, 8, FIGURE_9_LENGTHS[name], is_offloaded=True)
    ours = (plain.non_overlap, plain.nano_only, plain.pipeline, offloaded.pipeline)
    return {"ours": _ratios(ours), "paper": _ratios(FIGURE_9[name])}


def _ratios(tokens_per_s: tuple[float, float, float, float]) -> dict[str, float]:
    non_overlap, nano_only, nanoflow, offloaded = tokens_per_s
    return {
        "non_overlap_tok_s": non_overlap,
        "nano_only_tok_s": nano_only,
        "nanoflow_tok_s": nanoflow,
        "offload_tok_s": offloaded,
        "nano_only_ratio": nano_only / non_overlap,
        "nanoflow_ratio": nanoflow / non_overlap,
        "offload_change": offloaded / nanoflow - 1,
    }


def _figure_10(searches: Searches) -> dict[str, Any]:
    """A layer of Llama-2-70B: its time both ways, and how much of it products run at their best rate."""
    model, group = model_named(_70B), machine("a100", 8)
    batch = DenseBatch(TABLE_2_ROWS, TABLE_2_LENGTHS)
    found = searches.find(model, 8, batch, is_offloaded=False)
    flops = sum(cost.flops for cost in operator_costs(model, batch, group)) / model.num_layers
    busy_s = flops / (measured_flops_per_s(group) * group.num_devices)
    return {
        "ours": {
            "non_overlap_s": found.sequential_s,
            "nanoflow_s": found.schedule.period_s,
            "compute_share": busy_s / found.schedule.period_s,
            "gap": found.allocation.gap,
        },
        "paper": {"non_overlap_s": LAYER_S["non_overlap"], "nanoflow_s": LAYER_S["nanoflow"], "compute_share": 0.685},
    }
