"""The dashboard for those who send requests: are promises kept, how fast are answers, how long is the queue."""

from __future__ import annotations

from observability.grafana import Dashboard, Panel, Query, Row, Variable, stat
from observability.promql import increase, quantile, rate

_CHOSEN = '{model=~"$model",slo_class=~"$slo_class",tenant=~"$tenant"}'
_KIND = '{model=~"$model",slo_class=~"$slo_class"}'


def _rate(metric: str, by: str) -> str:
    return rate(metric, by, chosen=_CHOSEN)


def _total(metric: str) -> str:
    return increase(metric, chosen=_CHOSEN, window="$__range")


def _quantiles(histogram: str) -> list[Query]:
    return [Query(quantile(share, histogram, chosen=_CHOSEN), f"p{share * 100:g}") for share in (0.5, 0.9, 0.99)]


def _p90_by_class(histogram: str) -> list[Query]:
    return [Query(quantile(0.9, histogram, "slo_class", chosen=_CHOSEN), "{{slo_class}}")]


def _attainment(window: str, *by: str) -> str:
    """Kept promises of all that were judged."""
    kept, missed = (
        increase(f"treadle_slo_{outcome}_total", *by, chosen=_CHOSEN, window=window)
        for outcome in ("attained", "missed")
    )
    return f"{kept} / ({kept} + {missed})"


PROMISES = Row(
    "Promises",
    [
        stat(
            "SLO attainment",
            "Share of judged requests whose promise was kept, over the time shown. Who left is not judged.",
            _attainment("$__range"),
            unit="percentunit",
            width=6,
        ),
        stat(
            "Requests",
            "All that ended in the time shown, refused ones included.",
            _total("treadle_requests_total"),
            width=6,
        ),
        stat("Output tokens", "Tokens of answers in the time shown.", _total("treadle_output_tokens_total"), width=6),
        stat("In flight", "Requests that all gateways hold now.", "sum(treadle_inflight_requests)", width=6),
        Panel(
            "SLO attainment by class",
            "Share of kept promises, over five minutes.",
            "percentunit",
            [Query(_attainment("5m", "slo_class"), "{{slo_class}}")],
            width=12,
        ),
        Panel(
            "SLO attainment by model",
            "Share of kept promises, over five minutes.",
            "percentunit",
            [Query(_attainment("5m", "model"), "{{model}}")],
            width=12,
        ),
    ],
)

LATENCY = Row(
    "Latency, as clients see it",
    [
        Panel("Time to first token", "From arrival to the first token.", "s", _quantiles("treadle_ttft_seconds")),
        Panel(
            "Time per output token",
            "Mean of an answer, behind its first token.",
            "s",
            _quantiles("treadle_tpot_seconds"),
        ),
        Panel("End to end", "From arrival to the last token.", "s", _quantiles("treadle_e2e_seconds")),
        Panel(
            "Time to first token, p90 by class",
            "Beside the promise of the class.",
            "s",
            _p90_by_class("treadle_ttft_seconds"),
        ),
        Panel(
            "Time per output token, p90 by class",
            "Beside the promise of the class.",
            "s",
            _p90_by_class("treadle_tpot_seconds"),
        ),
        Panel(
            "Time to first token, all answers",
            "How many came after how long.",
            "s",
            [Query(increase("treadle_ttft_seconds_bucket", "le", chosen=_CHOSEN), "{{le}}")],
            kind="heatmap",
        ),
    ],
)

QUEUE = Row(
    "Queue",
    [
        Panel(
            "Waiting requests",
            "Accepted, and pulled by no node yet.",
            "short",
            [
                Query(
                    f"sum by (model, slo_class) (treadle_queue_waiting_requests{_CHOSEN})",
                    "{{model}} {{slo_class}}",
                )
            ],
        ),
        Panel(
            "Predicted wait of a newcomer",
            "Until its first token; solid is the mean, p90 will not be exceeded by nine of ten.",
            "s",
            [
                Query(
                    f"max by (model, slo_class) (treadle_queue_predicted_wait_seconds{_KIND})",
                    "{{model}} {{slo_class}}",
                ),
                Query(
                    f"max by (model, slo_class) (treadle_queue_predicted_wait_p90_seconds{_KIND})",
                    "{{model}} {{slo_class}} p90",
                ),
            ],
        ),
        Panel(
            "Overdue",
            "How long ago the most urgent waiting request should have started.",
            "s",
            [Query(f"max by (model, slo_class) (treadle_queue_overdue_seconds{_CHOSEN})", "{{model}} {{slo_class}}")],
        ),
    ],
)

TRAFFIC = Row(
    "Traffic",
    [
        Panel(
            "Requests by how they ended",
            "ok, cancelled by the client, rejected for what it asked, or why it was dropped.",
            "reqps",
            [Query(_rate("treadle_requests_total", "outcome"), "{{outcome}}")],
        ),
        Panel(
            "Refused requests by code",
            "The `code` in the error that the client got.",
            "reqps",
            [Query(_rate("treadle_refused_requests_total", "code"), "{{code}}")],
        ),
        Panel(
            "Attempts after the first",
            "A node was lost, or a request gave way without its KV; its stream goes on.",
            "reqps",
            [Query(_rate("treadle_resubmitted_requests_total", "model"), "{{model}}")],
        ),
        Panel(
            "Prompt tokens by model",
            "Of answers that began; those of them that were found in a cache are not computed.",
            "short",
            [
                Query(_rate("treadle_prompt_tokens_total", "model"), "{{model}}"),
                Query(_rate("treadle_cached_prompt_tokens_total", "model"), "{{model}}, cached"),
            ],
        ),
        Panel(
            "Output tokens by model",
            "A second.",
            "short",
            [Query(_rate("treadle_output_tokens_total", "model"), "{{model}}")],
        ),
        Panel(
            "Output tokens by tenant",
            "A second, of the ten with most.",
            "short",
            [Query(f"topk(10, {_rate('treadle_output_tokens_total', 'tenant')})", "{{tenant}}")],
        ),
    ],
)

USERS = Dashboard(
    uid="treadle-users",
    title="Treadle: users",
    description="Kept promises, latency and queue, as clients see them. Gateways and queue manager.",
    variables=[
        Variable("model", "label_values(treadle_requests_total, model)"),
        Variable("slo_class", "label_values(treadle_requests_total, slo_class)"),
        Variable("tenant", "label_values(treadle_requests_total, tenant)"),
    ],
    rows=[PROMISES, LATENCY, QUEUE, TRAFFIC],
)
