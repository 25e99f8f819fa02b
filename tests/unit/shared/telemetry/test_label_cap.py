from __future__ import annotations

from shared.telemetry.label_cap import MAX_LABEL_SETS, LabelCap


def test_the_first_sets_are_told_apart_and_the_others_are_one() -> None:
    cap = LabelCap(max_sets=2)
    shown = [cap.capped(labels) for labels in (("a", "x"), ("a", "y"), ("b", "x"), ("a", "x"), ("b", "y"))]
    assert shown == [("a", "x"), ("a", "y"), ("other", "other"), ("a", "x"), ("other", "other")]


def test_a_thousand_sets_are_the_default() -> None:
    cap = LabelCap()
    shown = [cap.capped((str(number),)) for number in range(MAX_LABEL_SETS + 1)]
    assert (MAX_LABEL_SETS, len(set(shown)), shown[-1]) == (1_000, 1_001, ("other",))
