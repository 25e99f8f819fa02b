"""What a model wants before and behind a text, by its tokenizer's files: BOS and EOS, mostly."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.vocabulary.hf_vocabulary import HfFiles, HfVocabulary
from shared.vocabulary.model_fields import ModelFields


@dataclass(frozen=True, slots=True)
class TextEdges:
    """Token ids around a text."""

    prefix_ids: list[int] = field(default_factory=list)
    suffix_ids: list[int] = field(default_factory=list)


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
        elif type_ != "ByteLevel":  # which only has to do with offsets
            raise files.tokenizer.error(f"a post_processor of type {type_!r} is not supported")
    added = edges.prefix_ids + edges.suffix_ids
    if any(token_id not in vocabulary.names for token_id in added):
        raise files.tokenizer.error(f"its post_processor adds {added}, which are not all tokens")
    _apply(edges, files.tokenizer_config, vocabulary)
    return edges


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
    ids = edges.prefix_ids
    tokens = step.section("special_tokens") or ModelFields({}, step.path)
    for piece in step.sections("single"):
        special = piece.section("SpecialToken")
        if special is None:  # the text
            ids = edges.suffix_ids
            continue
        token = tokens.section(special.need("id", str))
        if token is None:
            raise step.error(f"its post_processor names {special.values['id']!r} and gives no ids for it")
        ids += token.token_ids("ids")
