"""What writing one token's event costs the gateway, in the words of each API.

    python benchmarks/answer_events.py --json

Processor time of `events` alone, for a token that adds a word to a text that is begun: as most answers are (plain), and
where thoughts or calls may be in it and are looked for (read). By turns, medians.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import click

from gateway.answers.answer import Renderer
from gateway.anthropic.renderer import MessageRenderer
from gateway.endpoints.chats.chat import ChatRenderer
from gateway.endpoints.chats.choice_reading import ChoiceReading
from gateway.endpoints.chats.tool_answers import CallReading
from gateway.openai.answers.answers import Usage
from gateway.openai.answers.delta import Delta
from gateway.reasoning.marks import THINK, ThoughtReading
from gateway.responses.rendering.renderer import ResponsesRenderer
from gateway.responses.requests.request import ResponsesRequest
from gateway.tools.notation import HERMES

NUM_TOKENS = 20_000
TOKEN = Delta(" word", 1)
PROMPT = Usage(1, 0, 1)


def plain() -> ChoiceReading:
    """Nothing but text is looked for."""
    return ChoiceReading(None, None, "r", 0)


def read() -> ChoiceReading:
    """Thoughts and calls are."""
    thoughts = ThoughtReading(THINK, is_open=False)
    return ChoiceReading(thoughts, CallReading(HERMES, {"get": None}, is_single=False), "r", 0)


def chat(reading: ChoiceReading) -> Renderer:
    """``/v1/chat/completions``."""
    return ChatRenderer("r", 0, "m", 1, None, [] if reading.is_plain else [reading], include_usage=False)


def responses(reading: ChoiceReading) -> Renderer:
    """``/v1/responses``."""
    return ResponsesRenderer(ResponsesRequest.model_validate({"model": "m", "input": "a"}), reading, "r", 0)


def messages(reading: ChoiceReading) -> Renderer:
    """``/v1/messages``."""
    return MessageRenderer("r", "m", reading, shows_thoughts=True)


def token_us(renderer: Renderer) -> float:
    """Microseconds of processor time a token."""
    renderer.opening(PROMPT)
    renderer.events(TOKEN)
    began_s = time.process_time()
    for _ in range(NUM_TOKENS):
        renderer.events(TOKEN)
    return (time.process_time() - began_s) / NUM_TOKENS * 1e6


@click.command()
@click.option("--rounds", default=9, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(rounds: int, as_json: bool) -> None:
    """Measure by turns and tell medians."""
    writers: list[Callable[[ChoiceReading], Renderer]] = [chat, responses, messages]
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for write in writers:
            for look in (plain, read):
                found.setdefault(f"{write.__name__}_{look.__name__}_us", []).append(token_us(write(look())))
    medians = {name: round(statistics.median(times), 2) for name, times in found.items()}
    click.echo(json.dumps(medians) if as_json else "\n".join(f"{name:20} {us:6.2f}" for name, us in medians.items()))


if __name__ == "__main__":
    main()
