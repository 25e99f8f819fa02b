"""What the gateway takes from a model's file or directory, whichever of the two it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.models.chat_template import ChatTemplate
from gateway.models.pictures.picture_form import PictureForm
from gateway.models.tokenizer.tokenizer import PromptTokenizer
from shared.vocabulary.model_fields import ModelFields


@dataclass(frozen=True)
class ModelParts:
    """Read once, and shared by all models that are served from the same source."""

    tokenizer: PromptTokenizer
    template: ChatTemplate | None
    """None for a base model, which has no chat."""
    context_length: int | None
    """How many tokens the model was trained for; None if the source does not say."""
    tool_template: ChatTemplate | None = None
    """For conversations with functions; None where there is no other for them."""
    family: str = ""
    """As its files call it (``model_type``, ``general.architecture``)."""
    is_classifier: bool = False
    """Its head is of labels and not of tokens."""
    is_encoder: bool = False
    """Its tokens see those behind them (`shared.files.encoder`)."""
    score_prompt: str | None = None
    """How a query and a document are put to it, with places as in `shared.config.engines.scoring`, where the files
    say."""
    sampling_file: ModelFields | None = None
    """Where it is said how its tokens are drawn; None where nothing says so."""
    sampling_names: Mapping[str, str] = field(default_factory=dict)
    """What fields of `SamplingDefaults` are called there."""
    pictures: PictureForm | None = None
    """How it is shown images; None where it reads none, or where they cannot be counted."""
