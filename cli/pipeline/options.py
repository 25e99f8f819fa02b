"""What the commands of `treadle pipeline` ask for alike: a model, devices, and what a step is made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import click

from cli.errors import CliError
from shared.config.hardware import MODELS, ModelShape
from shared.pipelines.machine import DEVICE_NAMES, GroupPeaks, machine
from shared.pipelines.paper import TABLE_2_LENGTHS, TABLE_2_ROWS

_OPTIONS = (
    click.option("--model", required=True, help="A model of the catalogue, such as llama-2-70b."),
    click.option("--device", type=click.Choice(DEVICE_NAMES), required=True, help="A device of the catalogue."),
    click.option("--num", type=click.IntRange(1, 1024), default=1, show_default=True, help="Devices, tensor parallel."),
    click.option(
        "--rows", type=click.IntRange(32, 1 << 16), default=TABLE_2_ROWS, show_default=True, help="Of each step."
    ),
    click.option(
        "--prompt-tokens",
        type=click.IntRange(min=1),
        default=int(TABLE_2_LENGTHS.prompt_tokens),
        show_default=True,
        help="Of a request, on average.",
    ),
    click.option(
        "--output-tokens",
        type=click.IntRange(min=0),
        default=int(TABLE_2_LENGTHS.output_tokens),
        show_default=True,
        help="Of a request, on average.",
    ),
)


def setup_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options."""
    return reduce(lambda inner, option: option(inner), reversed(_OPTIONS), command)


def chosen_model(name: str) -> ModelShape:
    """The model of that name, or an error that says which there are."""
    if name not in MODELS:
        raise CliError(f"--model: no model {name!r} is known; there are {', '.join(MODELS)}")
    return MODELS[name]


def chosen_machine(device: str, num_devices: int) -> GroupPeaks:
    """So many devices; several need links."""
    found = machine(device, num_devices)
    if num_devices > 1 and not found.network_bytes_per_s:
        raise CliError(f"--num {num_devices}: {device} has no links to others of its kind; give --num 1")
    return found
