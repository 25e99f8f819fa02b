"""A small Idefics3 with weights made up and a tokenizer of its own: the family that vLLM reads without torchvision."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image

from tests.gateway.hf_tiny import byte_level

MARKS = (
    *("<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"),
    *(f"<row_{row}_col_{column}>" for row in range(1, 4) for column in range(1, 4)),
)
IMAGE_TOKENS = 4  # of a tile of 32 by 32: patches of 8, of which 2 by 2 are one token
TEMPLATE = """{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}{% for part in message.content %}
{% if part.type == 'image' %}{{ '<image>' }}{% else %}{{ part.text }}{% endif %}{% endfor %}{{ '<|im_end|>' + '\n' }}
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


def write_idefics(folder: Path) -> Path:
    """With images of at most 64 by 64, which it reads as tiles of 32 by 32 and once as a whole."""
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor, LlamaConfig
    from transformers import PreTrainedTokenizerFast as Fast
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    folder.mkdir()
    (folder / "plain.json").write_text(json.dumps(byte_level()))
    tokenizer = Fast(tokenizer_file=str(folder / "plain.json"), bos_token="<|im_start|>", eos_token="<|im_end|>")
    tokenizer.pad_token = "<|endoftext|>"
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKS)})
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=0,
    )
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    }
    image_id = tokenizer.convert_tokens_to_ids("<image>")
    config = Idefics3Config(vision_config=vision, text_config=text, image_token_id=image_id, scale_factor=2)
    config.pad_token_id = 0
    torch.manual_seed(0)
    model = Idefics3ForConditionalGeneration(config).float()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:  # larger than usual: what an image shows decides what is said of it
                weight.normal_(std=0.3)
    model.save_pretrained(folder)
    files = Idefics3ImageProcessorPil(size={"longest_edge": 64}, max_image_size={"longest_edge": 32})
    processor = Idefics3Processor(image_processor=files, tokenizer=tokenizer, image_seq_len=IMAGE_TOKENS)
    processor.chat_template = TEMPLATE
    processor.save_pretrained(folder)
    (folder / "plain.json").unlink()
    return folder


def image_file(seed: int, size: tuple[int, int] = (48, 40), kind: str = "PNG") -> bytes:
    """Some coloured pixels as a file."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (5, 6, 3), generator=generator, dtype=torch.uint8).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).resize(size).save(file, kind)
    return file.getvalue()


def words(number: int, count: int) -> list[int]:
    """Tokens of text that are no marks."""
    return [(number * 131 + place * place * 7 + place) % 300 + 30 for place in range(count)]


def with_image(image_id: int, before: Sequence[int], behind: Sequence[int]) -> list[int]:
    """A prompt with a place for one image."""
    return [*before, image_id, *behind]
