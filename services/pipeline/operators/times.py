"""How long each operator of a layer takes alone, by rows: a fixed part and a part for each row, calibrated on table 2.

Split, an operator pays its fixed part again (NanoFlow, OSDI'25, §3.7: weights are loaded once more). What is fixed:

- products: reading their weights. The rate of their rows is what table 2 measures beyond that.
- attention: a launch, what table 2 measures of prefill attention beyond its estimate (§3.4 says so).
- collectives: nothing; their bandwidth is table 2's. The norm behind a collective is done by it.
- norms: bytes over bandwidth: two inputs and two outputs, as a norm comes with an addition.
- copies to the host: a launch, and bytes over the link.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.config.hardware import ModelShape
from shared.pipelines.batch import DenseBatch
from shared.pipelines.calibration import best_s, calibrate, weights_s
from shared.pipelines.cost import NUMBER_BYTES, operator_costs
from shared.pipelines.machine import GroupPeaks


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds by rows."""

    fixed_s: float
    row_s: float

    def seconds(self, num_rows: float) -> float:
        """Alone on the device."""
        return self.fixed_s + self.row_s * num_rows

    def __add__(self, other: Line) -> Line:
        return Line(self.fixed_s + other.fixed_s, self.row_s + other.row_s)

    def __mul__(self, factor: float) -> Line:
        return Line(self.fixed_s * factor, self.row_s * factor)


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Of one layer. Rows of attention are those of its own phase."""

    kqv: Line
    output: Line
    feed_forward: Line
    """Up and gate, and down as well where that has no time of its own."""
    down: Line | None
    decode_attention: Line
    prefill_attention: Line
    gather: Line
    """Of one gather; a reduction moves twice as much."""
    norm: Line
    copy: Line


def layer_times(group: GroupPeaks, model: ModelShape, batch: DenseBatch) -> LayerTimes:
    """Of one layer of a model on a group of devices whose kernels are as good as those of table 2."""
    found, layers = calibrate(), model.num_layers
    costs = {cost.name: cost for cost in operator_costs(model, batch, group)}

    def product(name: str) -> Line:
        cost = costs[name]
        rows_s = cost.compute_s(group) / found.rate_share[name]
        return Line(weights_s(cost, group) / layers, rows_s / layers / batch.num_rows)

    def attention(name: str, num_rows: float, slowness: float) -> Line:
        rows_s = best_s(costs[name], group) * slowness
        return Line(found.launch_s, rows_s / layers / num_rows if num_rows else 0.0)

    norm_bytes = 4 * model.hidden_size * NUMBER_BYTES * group.num_devices  # each device has all rows
    copied = model.kv_token_bytes / layers
    return LayerTimes(
        kqv=product("KQV"),
        output=product("O"),
        feed_forward=product("UG"),
        down=product("D"),
        decode_attention=attention("DecAttn", batch.num_decodes, found.attention_slowness),
        prefill_attention=attention("PfAttn", batch.num_prefill_rows, 1.0),
        gather=Line(0.0, costs["Net"].network_s(group) * found.network_slowness / layers / batch.num_rows / 4),
        norm=Line(0.0, norm_bytes / group.memory_bytes_per_s),
        copy=Line(found.launch_s, copied / group.host_bytes_per_s if group.host_bytes_per_s else 0.0),
    )
