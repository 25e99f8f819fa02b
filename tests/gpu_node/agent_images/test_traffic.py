"""Whoever waits for an image hears of it, whatever becomes of the fetch."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import trace

from gpu_node.agent.decisions.actions import ImageFetched, PrefixFetched, Resume
from gpu_node.agent.images.given_images import GivenImages
from gpu_node.agent.images.image_fetcher import ImageFetcher
from gpu_node.agent.images.image_traffic import ImageTraffic
from gpu_node.agent.telemetry.spans import RunSpans
from gpu_node.engine.process.protocol.protocol import NO_IMAGE
from shared.messages.requests.requests import ImageTicket
from tests.unit.agent.events import payload_of


@pytest.mark.parametrize("url", ["", "no address", "http:///images/v1/p.1-1"])
async def test_a_ticket_that_makes_no_sense_is_an_image_that_is_lost(url: str) -> None:
    told: asyncio.Queue[ImageFetched | PrefixFetched] = asyncio.Queue()
    spans = RunSpans("n0", trace.get_tracer("tests"))
    traffic = ImageTraffic(GivenImages("n0", "n0.1", "http://n0"), ImageFetcher(1 << 20, lambda: 0), spans, told.put)
    payload = payload_of("r")
    traffic.do(Resume(payload, ImageTicket("p", url, "secret", 9)))
    async with asyncio.timeout(30.0):
        assert await told.get() == ImageFetched(payload, NO_IMAGE, 0.0)
    await traffic.close()
