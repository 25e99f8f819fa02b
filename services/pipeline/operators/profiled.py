"""What was measured of a device (`shared.config.measured.pipeline_profile`) as a search needs it: NanoFlow, OSDI'25,
§4.1.1.

Times of products are a fixed part and a part for each row, by least squares of relative errors; attention's parts are
straight lines between the contexts that were measured. The table R -> P: a product and another operator beside each
other keep (p, P) of their speeds, and R = 1 - p, since of products R = P by definition. Pairs that another pair is no
worse than in both are dropped, and between the others there are straight lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

from services.pipeline.operators.setting import Setting
from services.pipeline.operators.times import LayerTimes, Line
from shared.config.hardware import ModelShape
from shared.config.measured.pipeline_profile import MEASURE, Pair, PipelineProfile, PipelineProfileError
from shared.pipelines.batch import DenseBatch
from shared.pipelines.lanes import Interference, ResourceLane

PRODUCTS = ("KQV", "O", "UGD")
ATTENTIONS = ("DecAttn", "PfAttn")
_NOTHING = Line(0.0, 0.0)

Point = tuple[float, float]
"""R and P."""


def profiled_setting(profile: PipelineProfile, model: ModelShape, batch: DenseBatch) -> Setting:
    """One device of the profile's kind; `PipelineProfileError` where the profile lacks what a search needs."""
    if (profile.num_layers, profile.hidden_size) != (model.num_layers, model.hidden_size):
        raise PipelineProfileError(
            f"the profile is stale: it has {profile.num_layers} layers of {profile.hidden_size}, {model.name} has "
            f"{model.num_layers} of {model.hidden_size}; {MEASURE} again"
        )
    missing = {*PRODUCTS, *ATTENTIONS} - {time.name for time in profile.operators}
    is_paired = profile.copy_bytes_per_s > 0 and any(pair.lane == "memory" for pair in profile.pairs)
    if missing or not is_paired:
        what = f"times of {', '.join(sorted(missing))}" if missing else "what operators keep beside one another"
        raise PipelineProfileError(f"the profile lacks {what}; {MEASURE}")
    copied = model.kv_token_bytes / model.num_layers
    times = LayerTimes(
        kqv=_line(profile, "KQV", 0.0),
        output=_line(profile, "O", 0.0),
        feed_forward=_line(profile, "UGD", 0.0),
        down=None,
        decode_attention=_line(profile, "DecAttn", batch.lengths.mean_context_tokens),
        prefill_attention=_line(profile, "PfAttn", batch.lengths.prompt_tokens),
        gather=_NOTHING,
        norm=_NOTHING,  # within the products behind them
        copy=Line(0.0, copied / profile.copy_bytes_per_s),
    )
    return Setting(1, model.num_layers, batch, times, interference(profile), profile.granule_rows)


def interference(profile: PipelineProfile) -> Interference:
    """With as many parts of the device as there are threads; a copy is what a collective is on such a device."""
    points = {
        ResourceLane.COMPUTE: ((0.0, 0.0), (1.0, 1.0)),
        **{ResourceLane(lane): table(profile.pairs, lane) for lane in {pair.lane for pair in profile.pairs}},
    }
    points.setdefault(ResourceLane.COPY, points.get(ResourceLane.NETWORK, points[ResourceLane.COMPUTE]))
    return Interference(points, num_shares=profile.num_threads)


def table(pairs: Sequence[Pair], lane: str) -> tuple[Point, ...]:
    """R -> P of a lane: means over shapes of what a number of threads gives, without what is dominated."""
    chosen = [pair for pair in pairs if pair.lane == lane]
    means = [
        (
            mean(pair.product_performance for pair in chosen if pair.num_threads == number),
            mean(pair.performance for pair in chosen if pair.num_threads == number),
        )
        for number in sorted({pair.num_threads for pair in chosen})
    ]
    kept = [
        (product, other)
        for product, other in means
        if not any(one != (product, other) and one[0] >= product and one[1] >= other for one in means)
    ]
    inner = sorted((1 - product, min(1.0, other)) for product, other in kept if 0 < 1 - product < 1)
    growing = [point for before, point in pairwise([(0.0, 0.0), *inner]) if point[1] > before[1]]
    return ((0.0, 0.0), *growing, (1.0, 1.0))


def spread(pairs: Sequence[Pair], lane: str) -> float:
    """Largest |P / mean - 1| over shapes, of any number of threads (the paper has 5 % at most)."""
    found = 0.0
    for number in {pair.num_threads for pair in pairs if pair.lane == lane}:
        values = [pair.performance for pair in pairs if pair.lane == lane and pair.num_threads == number]
        found = max(found, *(abs(value / mean(values) - 1) for value in values))
    return found


def _line(profile: PipelineProfile, name: str, context_tokens: float) -> Line:
    """Between the two contexts next to the one that is asked for, or beyond the last two."""
    contexts = sorted({time.context_tokens for time in profile.operators if time.name == name})
    lines = [(context, _fitted(profile, name, context)) for context in contexts]
    if len(lines) == 1:
        return lines[0][1]
    (low, short), (high, long) = next(
        (pair for pair in pairwise(lines) if context_tokens <= pair[1][0]), (lines[-2], lines[-1])
    )
    part = max(0.0, (context_tokens - low) / (high - low))
    return short * (1 - part) + long * part


def _fitted(profile: PipelineProfile, name: str, context_tokens: int) -> Line:
    """Least squares of (fixed + row x rows) / seconds - 1; no negative part."""
    points = [
        (time.rows, time.seconds)
        for time in profile.operators
        if time.name == name and time.context_tokens == context_tokens
    ]
    ones = sum(1 / seconds**2 for _, seconds in points)
    rows = sum(number / seconds**2 for number, seconds in points)
    squares = sum(number**2 / seconds**2 for number, seconds in points)
    fixed_sum, row_sum = sum(1 / seconds for _, seconds in points), sum(number / seconds for number, seconds in points)
    determinant = ones * squares - rows**2
    if determinant > 0:
        fixed_s = (fixed_sum * squares - row_sum * rows) / determinant
        row_s = (row_sum * ones - fixed_sum * rows) / determinant
        if fixed_s >= 0 and row_s >= 0:
            return Line(fixed_s, row_s)
        if row_s < 0:
            return Line(fixed_sum / ones, 0.0)
    return Line(0.0, row_sum / squares)
