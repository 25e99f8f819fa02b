"""The links of a CUDA device: what it sends of its models' attention, and what it serves for one other engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import torch

from gpu_node.engine.border.links import LinkName, LinkRefusedError, LinkTimes
from gpu_node.executors.cuda.links.receiver import CudaLinkReceiver
from gpu_node.executors.cuda.links.sender import CudaLinkSender
from gpu_node.executors.cuda.links.window import LinkWindow
from gpu_node.executors.cuda.memory.arena import CudaArena
from gpu_node.executors.cuda.memory.marks import Mark, mark
from gpu_node.executors.cuda.program.link_ends import Serving
from gpu_node.executors.cuda.program.program import CudaProgram
from gpu_node.kernels.link_file import FOLDER, LinkError
from gpu_node.kernels.triton.attention.poll import poll
from gpu_node.kernels.triton.attention.remote_ring import MAX_LOOKS
from gpu_node.kernels.triton.attention.task_ring import Tasks
from gpu_node.kernels.triton.cache import CacheShape
from gpu_node.kernels.triton.launch import INTERPRETED
from shared.files.kv_paging import LINE_BYTES
from shared.messages.memory.link_sizes import LinkSizes

LEAST_SLOTS = 2
"""Of a ring: a task is written while the answers of the one before are read."""
MAX_LEFT = 16
"""Windows of links that this end has closed and receivers still map: a hanging receiver keeps some megabytes."""
IDLE_LOOKS = 256
"""Of one launch, while the device has no step: so many microseconds, which the next step may have to wait."""
INTERPRETED_LOOKS = 50_000
"""Before a receiver is lost, where a look takes some sixty times as long."""


class LinkedModel(Protocol):
    """What links are about of a model that is loaded."""

    @property
    def program(self) -> CudaProgram:
        """Its graphs are of links as they are."""
        ...

    @property
    def shape(self) -> CacheShape:
        """Of its blocks."""
        ...

    @property
    def num_columns(self) -> int:
        """Of a row of q."""
        ...


class CudaLinks:
    """As `gpu_node.engine.border.links.Links`."""

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype,
        arena: Callable[[], CudaArena | None],
        models: Callable[[], Mapping[str, LinkedModel]],
        serving: Serving,
        folder: Path = FOLDER,
        *,
        is_on: bool,
    ) -> None:
        """``arena``: of all blocks of the device, once there is one. ``models``: that are loaded, by name.

        ``is_on``: their programs send and poll.
        """
        self._device = device
        self._dtype = dtype
        self._arena = arena
        self._models = models
        self._serving = serving
        self._folder = folder
        self._is_on = is_on
        self._senders: dict[LinkName, tuple[str, CudaLinkSender]] = {}
        self._receiver: tuple[LinkName, CudaLinkReceiver] | None = None
        self._left: list[LinkWindow] = []  # that the other end may still map
        self._num_served = 0  # for those that are not served any more
        self._looked: Mark | None = None

    # --- the sender's -------------------------------------------------------------------------------------------------

    def send(self, link: LinkName, model: str, max_sequences: int, max_blocks: int) -> LinkSizes:
        """Make the window; a step has one row of each sequence behind it."""
        self._check_on(link)
        if any(other == model for other, _ in self._senders.values()):
            raise LinkRefusedError(f"no link {link}: model {model!r} has one already")
        self._close_left()
        if len(self._left) >= MAX_LEFT:
            raise LinkRefusedError(f"no link {link}: {len(self._left)} earlier receivers have not closed theirs")
        loaded = self._models()[model]
        lowered, shape = loaded.program.lowered, loaded.shape
        heads = (loaded.num_columns // shape.head_dim, shape.num_kv_heads, shape.head_dim)
        num_slots = 1 << (max(LEAST_SLOTS, lowered.most_under_way) - 1).bit_length()
        sizes = LinkSizes(
            shape.num_layers, shape.block_size, *heads, num_slots, max_sequences, max_sequences, max_blocks
        )
        try:
            window = LinkWindow.make(self._folder, link, sizes, self._dtype, self._device)
        except LinkError as error:
            raise LinkRefusedError(str(error)) from error
        max_looks = INTERPRETED_LOOKS if INTERPRETED else MAX_LOOKS
        block_lines = shape.block_lines(self._dtype.itemsize)
        self._senders[link] = (
            model,
            CudaLinkSender(
                window, lowered.asking, block_lines, max_looks, partial(self._forget_graphs, loaded.program)
            ),
        )
        return sizes

    def served_generation(self, link: LinkName) -> int:
        """As the receiver has said."""
        return self._senders[link][1].served_generation()

    def sender_of(self, model: str) -> CudaLinkSender:
        """Of a model whose steps need a receiver."""
        return next(sender for other, sender in self._senders.values() if other == model)

    # --- the receiver's -----------------------------------------------------------------------------------------------

    @property
    def num_served(self) -> int:
        """Tasks that the device has done for others, as of late."""
        return self._num_served + (0 if self._receiver is None else self._receiver[1].num_served)

    def receive(self, link: LinkName, sizes: LinkSizes) -> None:
        """Serve another engine's attention from now on."""
        self._check_on(link)
        if self._receiver is not None:
            raise LinkRefusedError(f"no link {link}: a CUDA device serves one sender at a time, {self._receiver[0]}")
        arena = self._arena()
        if arena is None:
            raise LinkRefusedError(f"no link {link}: no model was loaded here, so there is no memory to lend")
        try:
            window = LinkWindow.open(self._folder, link, sizes, self._dtype, self._device)
        except LinkError as error:
            raise LinkRefusedError(str(error)) from error
        pages = arena.num_bytes // LINE_BYTES // arena.page_lines
        receiver = CudaLinkReceiver(window, pages, arena.page_lines, self._device, self._drain)
        self._receiver = link, receiver
        self._serve(receiver)
        for looks in (1, IDLE_LOOKS):  # compiled before a sender waits for it
            self._poll(receiver.tasks, arena, looks)
        receiver.look()

    def lend(self, link: LinkName, pages: Iterable[int]) -> None:
        """Pages of the arena."""
        self._receiver_of(link).lend(pages)

    def take_back(self, link: LinkName, pages: Iterable[int]) -> None:
        """Pages of the arena."""
        self._receiver_of(link).take_back(pages)

    def adapt(self) -> None:
        """Follow the sender into its next generation, and look for what it asks: programs without polls do not.

        No operator is split here.
        """
        arena = self._arena()
        if self._receiver is not None and arena is not None:
            self._receiver[1].look()
            self._poll(self._receiver[1].tasks, arena, looks=1)

    def serve(self) -> bool:
        """Where the device has no step: look for what is asked for, one launch at a time."""
        arena = self._arena()
        if self._receiver is None or arena is None:
            return False
        receiver = self._receiver[1]
        receiver.look()
        if self._looked is None or self._looked.is_passed():
            self._poll(receiver.tasks, arena, 1 if INTERPRETED else IDLE_LOOKS)
            self._looked = mark(self._device)
        return True

    def _poll(self, tasks: Tasks, arena: CudaArena, looks: int) -> None:
        with torch.inference_mode():
            poll(tasks, arena.numbers(self._dtype), looks)

    def _receiver_of(self, link: LinkName) -> CudaLinkReceiver:
        assert self._receiver is not None
        assert self._receiver[0] == link, "the only one"
        return self._receiver[1]

    def _serve(self, receiver: CudaLinkReceiver | None) -> None:
        self._serving.tasks = None if receiver is None else receiver.tasks
        for model in self._models().values():
            self._forget_graphs(model.program)

    def _forget_graphs(self, program: CudaProgram) -> None:
        """When none of them is running."""
        self._drain()
        program.forget_graphs()

    # --- both ---------------------------------------------------------------------------------------------------------

    def times(self, link: LinkName, model: str) -> LinkTimes:
        """Nothing is measured on the device but the number of tasks."""
        del model
        is_served = self._receiver is not None and self._receiver[0] == link
        return LinkTimes(num_served=self.num_served if is_served else 0)

    def close_link(self, link: LinkName) -> None:
        """Either end."""
        if self._receiver is not None and self._receiver[0] == link:
            receiver, self._receiver = self._receiver[1], None
            self._serve(None)
            self._num_served += receiver.close()
        if link in self._senders:
            self._drain()
            _, sender = self._senders.pop(link)
            self._left.append(sender.close())
            self._close_left()

    def close(self) -> None:
        """All of them."""
        for link in [*self._senders, *([] if self._receiver is None else [self._receiver[0]])]:
            self.close_link(link)
        for window in self._left:  # the process ends, and its memory with it
            window.close()
        self._left.clear()

    def _close_left(self) -> None:
        """Memory is freed when no process maps it: before, what a late receiver does there would be undefined."""
        for window in [one for one in self._left if not one.is_mapped_elsewhere]:
            self._left.remove(window)
            window.close()

    def _check_on(self, link: LinkName) -> None:
        if not self._is_on:
            raise LinkRefusedError(f"no link {link}: engine.offload is off at this node")

    def _drain(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
