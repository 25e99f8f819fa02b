"""What `treadle bench offload --simulated` puts beside a paper's numbers."""

from __future__ import annotations

from cli.bench.beside import paper_rows


def test_rows_are_all_numbers_that_the_paper_has_too() -> None:
    found = {
        "tpot": {"ours": 1.5, "paper": 2.0},
        "by_rate": {"15": {"hot_tpot_s": 1.0}},
        "seeds": [1, 2],
        "layer": {"time": {"ours": {"a": 1.0, "b": 2.0}, "paper": {"b": 3.0}}},
    }
    assert paper_rows(found) == [("tpot", 1.5, 2.0), ("layer time b", 2.0, 3.0)]
