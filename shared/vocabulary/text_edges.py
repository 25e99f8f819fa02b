"""What a model wants before and behind a text, and between two of a pair, by its tokenizer's files: BOS and EOS mostly;
of encoders, the tokens of a class and of separators."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.vocabulary.hf_vocabulary import HfFiles, HfVocabulary
from shared.vocabulary.model_fields import ModelFields


@dataclass(frozen=True, slots=True)
class TextEdges:
    """Token ids around a text."""

    prefix_ids: list[int] = field(default_factory=list)
    suffix_ids: list[int] = field(default_factory=list)
    between_ids: list[int] = field(default_factory=list)
    """Between the texts of a pair, which has the same around it; empty where the files say nothing of pairs."""
    pair_segments: list[int] = field(default_factory=list)
    """Of a pair, the segment of each of those tokens and of each text, in their order."""

    @property
    def has_segments(self) -> bool | None:
        """Whether a pair's tokens are of segment 1 behind the first token between its texts, and of 0 before; False
        where all are of 0; None where it is otherwise."""
        num_first = len(self.pair_segments) - len(self.suffix_ids) - len(self.between_ids)  # with that token
        segmented = [0] * num_first + [1] * (len(self.pair_segments) - num_first)
        return True if self.pair_segments == segmented else None if any(self.pair_segments) else False


def text_edges(files: HfFiles, vocabulary: HfVocabulary) -> TextEdges:
    """What the post-processor puts around a text; for BOS ``add_bos_token`` has the last word if it is there, for EOS
    ``add_eos_token``.

    So do llama.cpp and `transformers` 4; `transformers` 5 only looks at the post-processor.
    """
    edges = TextEdges()
    for step in files.tokenizer.steps("post_processor", "processors"):
        type_ = step.get("type", str)
        if type_ == "TemplateProcessing":
            _read_template(step, edges)
        elif type_ in _NUM_SEPARATORS:
            cls, sep = (_named_id(step, key) for key in ("cls", "sep"))
            edges.prefix_ids.append(cls)
            edges.suffix_ids.append(sep)
            edges.between_ids.extend([sep] * _NUM_SEPARATORS[type_])
            edges.pair_segments.extend([0, 0, 0, 1, 1] if type_ == "BertProcessing" else [0] * 6)
        elif type_ != "ByteLevel":  # which only has to do with offsets
            raise files.tokenizer.error(f"a post_processor of type {type_!r} is not supported")
    added = edges.prefix_ids + edges.between_ids + edges.suffix_ids
    if any(token_id not in vocabulary.names for token_id in added):
        raise files.tokenizer.error(f"its post_processor adds {added}, which are not all tokens")
    _apply(edges, files.tokenizer_config, vocabulary)
    return edges


_NUM_SEPARATORS = {"BertProcessing": 1, "RobertaProcessing": 2}
"""Between two texts, of post-processors that are no template."""


def _named_id(step: ModelFields, key: str) -> int:
    """Of ``[name, id]``."""
    match step.values.get(key):
        case [str(), int(token_id)]:
            return token_id
    raise step.error(f"its post_processor has no {key} token with an id")


def _apply(edges: TextEdges, config: ModelFields, vocabulary: HfVocabulary) -> None:
    wants_bos, bos_id = config.get("add_bos_token", bool), vocabulary.bos_id
    if wants_bos and bos_id is None:
        raise config.error("prompts begin with BOS (add_bos_token), but bos_token is missing")
    if wants_bos and bos_id is not None and bos_id not in edges.prefix_ids:
        edges.prefix_ids.insert(0, bos_id)
    if wants_bos is False and bos_id in edges.prefix_ids:
        edges.prefix_ids[:] = [one for one in edges.prefix_ids if one != bos_id]
    wants_eos, eos_id = config.get("add_eos_token", bool), vocabulary.eos_ids[0]
    if wants_eos and eos_id not in edges.suffix_ids:
        edges.suffix_ids.append(eos_id)
    if wants_eos is False:
        edges.suffix_ids[:] = [one for one in edges.suffix_ids if one != eos_id]


def _read_template(step: ModelFields, edges: TextEdges) -> None:
    parts = _around_texts(step, "single")
    edges.prefix_ids.extend(parts[0])
    edges.suffix_ids.extend(token for part in parts[1:] for token in part)
    match _around_texts(step, "pair"):
        case [before, between, behind] if [before, behind] == parts:
            edges.between_ids.extend(between)
            edges.pair_segments.extend(_segments(step))


def _segments(step: ModelFields) -> list[int]:
    pieces = [piece.section("SpecialToken") or piece.section("Sequence") for piece in step.sections("pair")]
    return [0 if piece is None else piece.get("type_id", int) or 0 for piece in pieces]


def _around_texts(step: ModelFields, key: str) -> list[list[int]]:
    """Token ids before the first text of a template, behind it, behind the next."""
    parts: list[list[int]] = [[]]
    tokens = step.section("special_tokens") or ModelFields({}, step.path)
    for piece in step.sections(key):
        special = piece.section("SpecialToken")
        if special is None:  # a text
            parts.append([])
            continue
        token = tokens.section(special.need("id", str))
        if token is None:
            raise step.error(f"its post_processor names {special.values['id']!r} and gives no ids for it")
        parts[-1] += token.token_ids("ids")
    return parts
