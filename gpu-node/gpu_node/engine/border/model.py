"""What bookkeeping knows of a model that an executor has loaded."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from gpu_node.engine.border.plan import NO_ADAPTER
from shared.config.engines.engine import ModelTask
from shared.messages.prefixes.prefixes import DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in an executor, and how it cuts the pages of KV memory into its blocks."""

    name: str
    num_blocks: int
    """The most that it can come to have on the device: all pages."""
    block_size: int
    """Tokens a block."""
    block_bytes: int
    """Keys and values of one block, all layers together."""
    max_model_len: int
    """Most tokens of a sequence, prompt and output together."""
    vocab_size: int
    eos_token_ids: frozenset[int]
    num_pages: int = 1
    """Of the device's KV memory. Block ``page * blocks_per_page + slot`` lies in that page."""
    num_host_blocks: int = 0
    """Likewise in host memory, for what is swapped out."""
    num_host_pages: int = 1
    max_models: int = 1
    """That share these pages."""
    kv_layout: str = ""
    """Names the numbers of a block, their order and the weights that made them: where it is the same, content can go
    from device to device. Empty where blocks have no content."""
    kv_identity: str = ""
    """What makes its keys and values what they are: weights, types, layout, block size. Empty where it is not used."""
    pipeline_rows: int = 0
    """Steps of so many rows, or more, go through a pipeline whose operators overlap; 0: none does."""
    adapters: tuple[str, ...] = ()
    """Names of its adapters, in the order of their numbers, which other adapters of the model may change."""
    adapter_layouts: tuple[str, ...] = ()
    """In the same order, what is to be put behind ``kv_layout`` for blocks that an adapter has computed, so that it is
    said with which weights. Empty where all of it is in ``kv_layout``, or it is not used."""
    task: ModelTask = "generate"
    """What it is served for."""
    max_draft_tokens: int = 0
    """Of a sequence in a step, guessed tokens that the executor checks; 0: none."""
    max_structured_tokens: int = 0
    """Likewise of structured output; 0: none."""
    is_encoder: bool = False
    """Its tokens see those behind them: a text is computed in one step, and nothing of it serves another text."""
    step_tokens: int = 0
    """Most rows of a step, where they are not what the engine is configured for; 0: they are."""
    takes_pictures: bool = False
    """It reads images in a prompt."""
    lacks_pipeline: bool = False
    """Whether one was to be chosen, and nothing is known of any."""

    @property
    def gives_rows(self) -> bool:
        """Its draws give rows of its program's result (`StepResult.embeddings`), and no tokens."""
        return self.task != "generate"

    def number_of(self, adapter: str) -> int:
        """Of one of its adapters by name; of ``""``, which is the model itself, `NO_ADAPTER`."""
        return self.adapters.index(adapter) if adapter else NO_ADAPTER

    def layout_of(self, adapter: str) -> str:
        """``kv_layout`` of blocks that one of its adapters has computed; of ``""``, the model itself."""
        if not (self.kv_layout and adapter in self.adapters and self.adapter_layouts):
            return self.kv_layout
        return self.kv_layout + self.adapter_layouts[self.number_of(adapter)]

    def is_piped(self, num_rows: int) -> bool:
        """Whether a step of so many rows goes through the pipeline."""
        return 0 < self.pipeline_rows <= num_rows

    @property
    def salt(self) -> bytes:
        """What tells blocks of the same tokens apart where those of several models are stored together.

        Made of its name, as long as nothing of it outlives this engine.
        """
        return blake2b((self.kv_identity or self.name).encode(), digest_size=DIGEST_BYTES).digest()

    @property
    def blocks_per_page(self) -> int:
        """Of the device."""
        return self.num_blocks // self.num_pages

    @property
    def host_blocks_per_page(self) -> int:
        """Of host memory."""
        return self.num_host_blocks // self.num_host_pages

    @property
    def max_request_blocks(self) -> int:
        """The most that one request may need: an equal part of the pages, which it gets whatever others reserve."""
        return self.num_pages // self.max_models * self.blocks_per_page

    @property
    def num_reserved_pages(self) -> int:
        """What one sequence of full length needs: the pages that no other model can keep from this one."""
        num_blocks = -(-self.max_model_len // self.block_size)
        return min(self.num_pages // self.max_models, -(-num_blocks // self.blocks_per_page))
