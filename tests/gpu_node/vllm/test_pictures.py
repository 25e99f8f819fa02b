"""Requests with images, in an engine whose vLLM is not there: what it is asked, and what books have of them."""

from __future__ import annotations

from dataclasses import replace

from gpu_node.engine.requests.image import Kept
from gpu_node.vllm.serving.engine import VllmEngine
from shared.config.engines.engine import ModelSpec
from shared.messages.requests.payload import Payload
from shared.messages.requests.pictures import Picture
from tests.gpu_node.vllm.made import OPTIONS, Starter, payload, step


def pictured(request_id: str, *pictures: Picture, attempt: int = 0, output: tuple[int, ...] = ()) -> Payload:
    """One token, 0, stands for each image."""
    prompt = [5, *[0] * len(pictures), 6]
    outputs = [list(output)] if output else []
    return replace(payload(request_id, prompt, model="eyes", attempt=attempt, outputs=outputs), pictures=list(pictures))


def engine(starter: Starter, *names: str) -> VllmEngine:
    one = VllmEngine(starter, OPTIONS)
    for name in names:
        one.load_model(ModelSpec(name=name, source="none"))
    return one


WIDE, NARROW = Picture("d1", 3, 1, 4, b"wide"), Picture("d2", 1, 1, 4, b"narrow")


def test_vllm_is_asked_with_all_tokens_of_images_and_what_they_are_made_of() -> None:
    starter = Starter()
    one = engine(starter, "eyes")
    assert one.add(pictured("a", WIDE, NARROW)) == []
    (asked,) = starter.cores["eyes"].running
    assert (list(asked.token_ids), asked.max_tokens) == ([5, 0, 0, 0, 0, 6], 4)
    assert asked.features == (b"wide", b"narrow")
    (chunk,) = one.take("eyes", step({asked.core_id: 9}, begun=[asked.core_id]))
    assert chunk.token_ids == [9]
    one.check()


def test_each_choice_is_asked_with_the_images() -> None:
    starter = Starter()
    asked = pictured("a", WIDE)
    engine(starter, "eyes").add(replace(asked, sampling=replace(asked.sampling, num_choices=2, num_candidates=2)))
    assert [request.features for request in starter.cores["eyes"].running] == [(b"wide",), (b"wide",)]


def test_an_attempt_that_goes_on_has_its_output_behind_the_images() -> None:
    starter = Starter()
    one = engine(starter, "eyes")
    one.add(pictured("a", WIDE))
    assert one.evict(["a"]) == ([], [Kept("a", 0)])
    assert one.add(pictured("a", WIDE, attempt=1, output=(9, 8))) == []
    (asked,) = starter.cores["eyes"].running
    assert (list(asked.token_ids), asked.max_tokens) == ([5, 0, 0, 0, 6, 9, 8], 2)
    assert asked.features == (b"wide",)


def test_images_that_cannot_be_read_end_their_request_alone() -> None:
    starter = Starter()
    one = engine(starter, "eyes")
    one.add(pictured("a", WIDE))
    (chunk,) = one.add(pictured("b", Picture("d3", 2, 0, 4, b"flat")))
    assert (chunk.finish_reason, chunk.error) == ("refused", "the images cannot be read: one is flat")
    assert [asked.features for asked in starter.cores["eyes"].running] == [(b"wide",)]
    one.check()


def test_a_prompt_of_more_tokens_than_were_counted_is_refused() -> None:
    """Else it would take memory that nobody has planned for."""
    (chunk,) = engine(Starter(), "eyes").add(pictured("a", replace(WIDE, num_tokens=2)))
    assert chunk.finish_reason == "refused"
    assert chunk.error == "the prompt has 5 tokens with its images here, and was let in with 4"


def test_a_model_of_text_refuses_images_by_name() -> None:
    starter = Starter()
    (chunk,) = engine(starter, "m").add(replace(pictured("a", WIDE), model="m"))
    assert (chunk.finish_reason, chunk.error) == ("refused", "'m' takes no images at this node")
    assert starter.cores["m"].running == []
