"""What an engine could lend, by hand: ten pages."""

from __future__ import annotations

from gpu_node.engine.offload.page_needs import LendableRoom, PageNeed, lendable_room


def room(num_lent: int, *needs: PageNeed) -> tuple[int, int]:
    found = lendable_room(4096, 10, num_lent, needs)
    assert found == LendableRoom(4096, found.num_spare, found.num_missing)
    return found.num_spare, found.num_missing


def test_what_two_more_requests_would_take_is_not_spare() -> None:
    assert room(0, PageNeed(num_taken=1, num_kept=3, num_spared=5)) == (5, 0)
    assert room(4, PageNeed(1, 3, 5)) == (1, 0)
    assert room(5, PageNeed(1, 3, 5)) == (0, 0)


def test_what_is_taken_is_not_spare_however_little_is_expected() -> None:
    assert room(0, PageNeed(num_taken=7, num_kept=1, num_spared=2)) == (3, 0)


def test_between_one_and_two_more_requests_nothing_is_lent_and_nothing_called_back() -> None:
    assert room(6, PageNeed(num_taken=1, num_kept=4, num_spared=5)) == (0, 0)


def test_pages_are_missing_where_not_even_one_more_would_have_room() -> None:
    assert room(6, PageNeed(num_taken=4, num_kept=7, num_spared=9)) == (0, 3)


def test_no_more_is_missing_than_is_lent() -> None:
    assert room(2, PageNeed(num_taken=8, num_kept=15, num_spared=20)) == (0, 2)
    assert room(0, PageNeed(num_taken=8, num_kept=15, num_spared=20)) == (0, 0)


def test_needs_of_all_models_count() -> None:
    assert room(2, PageNeed(1, 2, 3), PageNeed(2, 2, 2)) == (3, 0)
