"""What an engine does about beginnings of prompts that other nodes want, or bring, and what its agent hears of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

from gpu_node.engine.process.protocol.frames import NO_IMAGE, ImageFile
from gpu_node.engine.process.protocol.prefix_protocol import (
    CopyPrefix,
    FindPrefix,
    PrefixCommand,
    PrefixCopied,
    PrefixEvent,
    PrefixFound,
    PrefixTaken,
)
from gpu_node.engine.requests.image import HandedOver, ImageError, SerialisedImage
from shared.messages.prefixes.prefix_ask import PrefixAsk
from shared.messages.requests.payload import Payload

log = logging.getLogger(__name__)


class PrefixPort(Protocol):
    """As `gpu_node.engine.prefix_exchange.PrefixExchange`."""

    def find(self, model: str, token_ids: Sequence[int], owner: str = "") -> tuple[int, int]:
        """How many tokens of a text are cached: on the device, and in all."""
        ...

    def copy(self, ask: PrefixAsk) -> HandedOver | None:
        """What is cached of a text; None where nothing can be given."""
        ...

    def take_in(self, payload: Payload, data: SerialisedImage) -> int:
        """Put what another engine has of a prompt into the cache; the tokens of it that are new. `ImageError`."""
        ...


@runtime_checkable
class ExchangesPrefixes(Protocol):
    """An engine that gives what it has cached, and takes what others have."""

    @property
    def prefixes(self) -> PrefixPort:
        """What it does that with."""
        ...


class FilePort(Protocol):
    """How copies leave the engine's process, and come (`gpu_node.engine.process.commands.commands.ImagePort`)."""

    def give(self, images: Iterable[HandedOver], told: Callable[[HandedOver, ImageFile], PrefixEvent]) -> None:
        """Have the agent told of each with what ``told`` makes of it."""
        ...

    def take(self, file: ImageFile) -> SerialisedImage:
        """What another engine has given; empty where it is lost."""
        ...


class PrefixCommands:
    """Carries them out between two steps. An engine that exchanges none has nothing, gives and takes nothing."""

    def __init__(self, engine: object, send: Callable[[PrefixEvent], None], files: FilePort) -> None:
        self._port = engine.prefixes if isinstance(engine, ExchangesPrefixes) else None
        self._send = send
        self._files = files

    def carry_out(self, command: PrefixCommand) -> None:
        """One of them."""
        match command:
            case FindPrefix(request_id, attempt, model, owner, token_ids):
                on_device, in_all = self._port.find(model, token_ids, owner) if self._port is not None else (0, 0)
                self._send(PrefixFound(request_id, attempt, on_device, in_all))
            case CopyPrefix(number, ask):
                copy = self._port.copy(ask) if self._port is not None else None
                if copy is None:
                    self._send(PrefixCopied(number, 0, NO_IMAGE))
                else:
                    self._files.give([copy], lambda image, file: PrefixCopied(number, image.number, file))

    def take_in(self, payload: Payload, file: ImageFile) -> None:
        """A request comes with what another node had of its prompt."""
        data = self._files.take(file)
        try:
            if self._port is None:
                raise ImageError("this engine takes none")
            num_tokens = self._port.take_in(payload, data)
        except ImageError as error:
            log.warning("prefix of request %s not used: %s", payload.request_id, error)
            self._send(PrefixTaken(0, is_refused=True))
        else:
            self._send(PrefixTaken(num_tokens))
