"""A node that only gives images, for tests to kill: ``python -m tests.gpu_node.agent_images.giver NUM_BYTES``.

It says the ticket of one image of so many bytes, whose content follows from their number, on a line of its own.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from gpu_node.agent.images.given_images import GivenImages
from gpu_node.engine.process.protocol.protocol import Image
from tests.image_files import laid
from tests.redis.image_port import image_port


def content(num_bytes: int) -> bytes:
    """What the image of so many bytes holds."""
    return (bytes(range(251)) * (num_bytes // 251 + 1))[:num_bytes]


async def main(num_bytes: int) -> None:
    """For ever."""
    holding: list[GivenImages] = []
    async with image_port(lambda: holding[0]) as base_url:
        holding.append(GivenImages("giver", "giver-1", base_url))
        held = holding[0].hold(Image("r", 0, 1, laid(content(num_bytes))))
        sys.stdout.write(msgspec.json.encode(held.ticket).decode() + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
