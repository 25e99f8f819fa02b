"""The links of a CPU device: what it sends of its models' attention, and what it serves for other engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from gpu_node.engine.border.links import LinkName, LinkRefusedError, LinkTimes
from gpu_node.engine.border.plan import StepPlan
from gpu_node.executors.cpu.splits import CpuSplits
from gpu_node.kernels.cpu import (
    CpuArena,
    CpuDevice,
    CpuLinkReceiver,
    CpuLinkSender,
    CpuLinkShape,
    CpuProgram,
    CpuRemote,
    CpuRemotes,
)
from gpu_node.kernels.cpu.remotes import NO_REMOTES
from gpu_node.kernels.link_file import FOLDER, LinkError
from shared.messages.memory.link_sizes import LinkSizes

GATHER_DEADLINE_S = 1.0
"""A receiver that has not answered by then is dropped: a thousand times what a task takes, and no longer than a client
may wait."""
STEPS_A_LOOK = 16
"""At what was measured: a look costs some ten microseconds."""
LEAST_SLOTS = 4
"""Tasks under way, where a program has fewer before it gathers: so many blocks are on their way at a time."""


class CpuLinks:
    """As `gpu_node.engine.border.links.Links`."""

    def __init__(
        self,
        device: CpuDevice,
        arena: CpuArena,
        level: str,
        programs: Callable[[], Mapping[str, CpuProgram]],
        folder: Path = FOLDER,
        *,
        splits: bool = True,
    ) -> None:
        """``programs``: of all loaded models, by name. ``splits``: long operators are run in parts, for senders."""
        self._device = device
        self._arena = arena
        self._level = level
        self._programs = programs
        self._splits = CpuSplits(device) if splits else None
        self._num_adapted = 0
        self._folder = folder
        self._senders: dict[LinkName, CpuLinkSender] = {}
        self._receivers: dict[LinkName, CpuLinkReceiver] = {}
        self._by_model: dict[str, CpuLinkSender] = {}

    @property
    def num_served(self) -> int:
        """Tasks that the device has done for others."""
        return self._device.num_served

    def send(self, link: LinkName, model: str, max_sequences: int, max_blocks: int) -> LinkSizes:
        """Make the memory; a step has one row of each sequence behind it."""
        if model in self._by_model:
            raise LinkRefusedError(f"no link {link}: model {model!r} has one already")
        program = self._programs()[model]
        cache = program.cache
        heads = (cache.num_kv_heads * program.num_shared_heads, cache.num_kv_heads, cache.head_dim)
        num_slots = 1 << (max(LEAST_SLOTS, program.most_under_way) - 1).bit_length()
        sizes = LinkSizes(
            cache.num_layers, cache.block_size, *heads, num_slots, max_sequences, max_sequences, max_blocks
        )
        try:
            sender = CpuLinkSender(
                CpuLinkShape.of(sizes), link.sender, link.receiver, deadline_s=GATHER_DEADLINE_S, folder=self._folder
            )
        except LinkError as error:
            raise LinkRefusedError(str(error)) from error
        self._senders[link] = self._by_model[model] = sender
        return sizes

    def served_generation(self, link: LinkName) -> int:
        """Once there is a receiver, the link's file has no name any more."""
        sender = self._senders[link]
        if not sender.is_open:
            return 0
        sender.hide()
        return sender.generation

    def receive(self, link: LinkName, sizes: LinkSizes) -> None:
        """Serve another engine's attention from now on."""
        device, arena = self._device, self._arena
        try:
            self._receivers[link] = CpuLinkReceiver(
                CpuLinkShape.of(sizes),
                link.sender,
                link.receiver,
                device=device,
                arena=arena,
                level=self._level,
                folder=self._folder,
            )
        except LinkError as error:
            raise LinkRefusedError(str(error)) from error

    def lend(self, link: LinkName, pages: Iterable[int]) -> None:
        """Pages of the arena."""
        self._receivers[link].lend(pages)

    def take_back(self, link: LinkName, pages: Iterable[int]) -> None:
        """Pages of the arena."""
        self._receivers[link].take_back(pages)

    def adapt(self) -> None:
        """By what is measured here, and what senders say of themselves."""
        self._num_adapted += 1
        if self._splits is not None and self._receivers and self._num_adapted % STEPS_A_LOOK == 0:
            self._splits.look(self._programs().values(), self._receivers.values())

    def serve(self) -> bool:
        """The device's threads look by themselves."""
        return False

    def times(self, link: LinkName, model: str) -> LinkTimes:
        """Of either end."""
        sender = self._senders.get(link)
        if sender is not None:
            times = sender.times
            return LinkTimes(times.local_s, times.step_s, times.away_s, times.waited_s, round(times.num_tasks))
        program = self._programs()[model]
        num_served, service_s = self._device.attended
        operators = program.times()
        return LinkTimes(
            *self._receivers[link].sender_times,
            service_s=service_s,
            num_served=num_served,
            operator_s=operators.seconds,
            num_steps=operators.num_steps,
            num_parts=self._splits.num_parts(program) if self._splits is not None else [1] * operators.num_operators,
        )

    def close_link(self, link: LinkName) -> None:
        """Either end."""
        receiver = self._receivers.pop(link, None)
        if receiver is not None:
            receiver.close()
            if self._splits is not None and not self._receivers:
                self._splits.join_parts(self._programs().values())
        sender = self._senders.pop(link, None)
        if sender is not None:
            self._device.drain()
            self._by_model = {model: one for model, one in self._by_model.items() if one is not sender}
            sender.close()

    def close(self) -> None:
        """All of them."""
        for link in [*self._receivers, *self._senders]:
            self.close_link(link)

    def remotes_of(self, plan: StepPlan, model: str) -> CpuRemotes:
        """What a step of a model does behind its link."""
        if not plan.needs_receiver:
            return NO_REMOTES
        num_sequences = sum(part.is_remote for part in plan.sequences)
        sends = [(move.device_block, move.remote_block) for move in plan.sends]
        calls_back = [(move.device_block, move.remote_block) for move in plan.calls_back]
        return CpuRemotes.of([CpuRemote(self._by_model[model], plan.generation, num_sequences, sends, calls_back)])
