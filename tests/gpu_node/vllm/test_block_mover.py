"""Blocks leave for a file a rank and come back to other places; what cannot be moved is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_node.vllm.blocks.block_mover import BlockMover, KeptMove
from gpu_node.vllm.blocks.transit import Transit

NUM_BLOCKS, BLOCK = 6, 4


def layers(fill: float | None = None) -> dict[str, torch.Tensor]:
    """One that counts its blocks first, and one behind keys and values."""
    shapes = {"first": (NUM_BLOCKS, 2, BLOCK), "second": (2, NUM_BLOCKS, BLOCK)}
    numbers = {name: torch.arange(2 * NUM_BLOCKS * BLOCK).view(shape) for name, shape in shapes.items()}
    return {name: (torch.full_like(one, fill) if fill is not None else one).bfloat16() for name, one in numbers.items()}


def mover(folder: Path, kv: dict[str, torch.Tensor], rank: int = 0) -> BlockMover:
    one = BlockMover(folder, rank)
    one.register(kv, NUM_BLOCKS)
    return one


def test_blocks_come_back_to_other_places_as_they_were(tmp_path: Path) -> None:
    kv, other = layers(), layers(fill=0)
    leaving = mover(tmp_path, kv)
    leaving.out(KeptMove("7", 3, [5, 0, 2]))
    assert (leaving.take_moved(), leaving.take_moved()) == ({"7"}, set())
    mover(tmp_path, other).back(KeptMove("7", 3, [1, 3, 4]))
    assert torch.equal(other["first"][[1, 3, 4]], kv["first"][[5, 0, 2]])
    assert torch.equal(other["second"][:, [1, 3, 4]], kv["second"][:, [5, 0, 2]])
    assert other["first"][[0, 2, 5]].count_nonzero() == other["second"][:, [0, 2, 5]].count_nonzero() == 0
    assert list(tmp_path.iterdir()) == []


def test_what_the_prefix_cache_has_is_not_brought_back(tmp_path: Path) -> None:
    kv, other = layers(), layers(fill=0)
    mover(tmp_path, kv).out(KeptMove("7", 3, [5, 0, 2]))
    mover(tmp_path, other).back(KeptMove("7", 3, [4]))
    assert torch.equal(other["first"][4], kv["first"][2])
    assert torch.equal(other["second"][:, 4], kv["second"][:, 2])
    assert other["first"][:4].count_nonzero() == 0


def test_what_is_not_there_is_told_so_that_it_is_computed_again(tmp_path: Path) -> None:
    one = mover(tmp_path, layers())
    one.back(KeptMove("7", 3, [4, 5]))
    assert (one.take_failed(), one.take_failed()) == ({4, 5}, set())


def test_without_room_nothing_lies_there_and_it_has_left_all_the_same(tmp_path: Path) -> None:
    one = mover(tmp_path / "full", layers())
    one.out(KeptMove("7", 1, [0]))
    assert one.take_moved() == {"7"}


def test_layers_that_are_not_cut_into_blocks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="layer odd has KV of shape"):
        mover(tmp_path, {"odd": torch.zeros(3, 4)})


def test_ranks_lay_down_their_parts_and_get_them_back(tmp_path: Path) -> None:
    transit = Transit(tmp_path / "kv", num_ranks=2)
    ranks = [mover(tmp_path / "kv", layers(fill=number + 1), rank=number) for number in range(2)]
    for one in ranks:
        one.out(KeptMove("7", 2, [0, 1]))
    content = transit.take("7")
    half = len(content) // 2
    assert content[:2] == layers(fill=1)["first"].view(torch.uint8).numpy().tobytes()[:2]
    assert content[:half] != content[half:]
    assert transit.take("7") == b"", "it was taken"
    assert transit.put("8", memoryview(content))
    other = layers(fill=0)
    mover(tmp_path / "kv", other, rank=1).back(KeptMove("8", 2, [2, 3]))
    assert other["first"][[2, 3]].eq(2).all()
    transit.drop(["8", "9"])
    transit.close()
    assert not (tmp_path / "kv").exists()


def test_content_of_which_a_rank_had_no_room_is_none(tmp_path: Path) -> None:
    transit = Transit(tmp_path / "kv", num_ranks=2)
    mover(tmp_path / "kv", layers()).out(KeptMove("7", 1, [0]))
    assert transit.take("7") == b""
    assert list((tmp_path / "kv").iterdir()) == []
