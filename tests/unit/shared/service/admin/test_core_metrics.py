"""The metrics of a core are those of its state at the moment, and a standby has none."""

from __future__ import annotations

from services.kv_manager.core import KvManagerCore
from shared.service.admin.core_metrics import CoreCollector, gauge, gauges
from tests.samples import samples_of


def test_a_standby_shows_nothing_and_a_leader_what_is_measured_now() -> None:
    leads: list[KvManagerCore] = []
    collector = CoreCollector(
        lambda: leads[0] if leads else None, lambda core: [gauge("treadle_x", "X", len(core.state.nodes))]
    )
    assert list(collector.collect()) == []
    leads.append(KvManagerCore())
    assert samples_of(collector.collect()) == {("treadle_x",): 0}


def test_a_gauge_has_a_sample_for_each_set_of_labels() -> None:
    family = gauges("treadle_x", "X", ["node", "model"], [(("n0", "a"), 1.5), (("n1", "b"), 2)])
    assert samples_of([family]) == {("treadle_x", "n0", "a"): 1.5, ("treadle_x", "n1", "b"): 2}
