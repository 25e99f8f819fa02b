"""The table of `treadle program`, and the lines above and below it."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from cli.program.report import OperatorRow, Report, operator_title, short_number
from cli.program.words import WHAT_IT_DOES
from gpu_node.graph.cost import Cost, DeviceRates
from gpu_node.graph.step_shape import StepShape
from gpu_node.models.config import ModelConfig


def program_table(report: Report) -> Table:
    """A row for each operator of each block; shares are of the whole step, all layers counted."""
    table = Table(box=None, pad_edge=False)
    for name in ("operator", "reads", "writes", "weights", "class"):
        table.add_column(name, overflow="fold")
    numbers = ["FLOP", "bytes", "% FLOP", "% bytes", *(["sent"] if report.cost.wire_bytes else [])]
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what it does", overflow="fold")
    for block in report.blocks:
        table.add_row(f"[bold]{escape(block.title)}[/]")
        for line in block.lines:
            table.add_row(*_cells(line, report.cost))
        if block.num_same > 1:
            table.add_row(
                f"  all {block.num_same} layers", "", "", "", "", *_numbers(block.cost, report.cost), style="dim"
            )
    table.add_row("[bold]the step[/]", "", "", "", "", *_numbers(report.cost, report.cost), style="bold")
    return table


def _cells(line: OperatorRow, whole: Cost) -> list[str]:
    operator = line.operator
    lists = (", ".join(names) for names in (line.reads, line.writes, line.weights))
    return [
        f"  {operator_title(operator)}",
        *map(escape, lists),
        str(operator.operator_class),
        *_numbers(line.cost, whole),
        WHAT_IT_DOES[operator.kind],
    ]


def _numbers(cost: Cost, whole: Cost) -> list[str]:
    shares = (_percent(cost.flops, whole.flops), _percent(cost.num_bytes, whole.num_bytes))
    sent = [short_number(cost.wire_bytes)] if whole.wire_bytes else []
    return [short_number(cost.flops), short_number(cost.num_bytes), *shares, *sent]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "–"


def model_line(config: ModelConfig) -> str:
    """The model in one line."""
    heads = f"{config.num_heads} heads of {config.head_dim} numbers"
    if config.num_kv_heads != config.num_heads:
        heads += f" sharing {config.num_kv_heads} of keys and values"
    inner = f"feed-forward {config.intermediate_size}"
    if config.num_experts:
        inner += f" in each of {config.num_experts} experts, {config.num_experts_per_token} a token"
    return (
        f"{config.family}: {config.num_layers} layers, rows of {config.hidden_size} numbers, {heads}, {inner}, "
        f"vocabulary {config.vocab_size}, context {config.context_length}"
    )


def step_line(step: StepShape) -> str:
    """The step in one line."""
    part = step.parts[0]
    return (
        f"a step of {_count(step.num_rows, 'row')} (tokens) of {_count(len(step.parts), 'sequence')} that "
        f"{'is' if len(step.parts) == 1 else 'are each'} {part.start + part.num_rows} tokens long after it; "
        f"{_count(step.num_draws, 'token')} drawn"
    )


def passes_line(passes: str, cost: Cost, plain: Cost) -> str:
    """What passes made of a step, in one line."""
    after, before = (f"{short_number(one.flops, 'FLOP')}, {short_number(one.num_bytes, 'B')}" for one in (cost, plain))
    return f"after {passes}: {after}; before: {before}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def bound_lines(report: Report, rates: DeviceRates, step: StepShape) -> list[str]:
    """How quick a step can be at all: with perfect overlap, and with one operator after the other."""
    whole = report.cost
    memory_s, compute_s = whole.num_bytes / rates.bytes_per_s, whole.flops / rates.flops_per_s
    network_s = whole.wire_bytes / rates.wire_bytes_per_s
    bound_s, resource = max((memory_s, "memory"), (compute_s, "compute"), (network_s, "network"))
    serial_s = sum(rates.seconds(cost) for cost in report.costs)
    lines = [
        f"time bound: {_seconds(bound_s)}, set by {resource} "
        f"(memory {_seconds(memory_s)}, compute {_seconds(compute_s)}"
        + (f", network {_seconds(network_s)}, if they overlap" if network_s else ", if the two overlap")
        + " perfectly)",
        f"operator after operator: {_seconds(serial_s)}, the sum of each one's own bound",
    ]
    if step.num_draws and bound_s:
        lines.append(f"at most {short_number(step.num_draws / bound_s)} tokens/s")
    return lines


def _seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"
