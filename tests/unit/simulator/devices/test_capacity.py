"""The least number of devices, on attainments that are known."""

from __future__ import annotations

import pytest

from services.simulator.devices import capacity
from services.simulator.devices.capacity import CapacityError, attainment_of, least_devices


def test_the_least_number_is_found_by_doubling_and_bisection() -> None:
    asked: list[int] = []

    def trial(num_devices: int, number: int) -> float:
        asked.append(num_devices)
        return min(1.0, num_devices / 11)

    count, tried = least_devices(trial, target=0.99, num_trials=1, confidence=0.95)
    assert count == 11
    assert asked == [1, 2, 4, 8, 16, 12, 10, 11]
    assert [one.num_devices for one in tried] == [1, 2, 4, 8, 10, 11, 12, 16]


def test_one_device_may_be_enough() -> None:
    assert least_devices(lambda *_: 1.0, 0.9, num_trials=3, confidence=0.95)[0] == 1


def test_a_mean_is_not_enough_where_trials_differ() -> None:
    """With two devices the mean is 0.92, but one trial in four keeps 0.68."""

    def trial(num_devices: int, number: int) -> float:
        return 1.0 if num_devices > 2 or number % 4 else 0.68

    count, tried = least_devices(trial, target=0.9, num_trials=8, confidence=0.95)
    assert count == 3
    assert tried[1].mean == 0.92
    assert tried[1].low < 0.9 <= tried[1].high


def test_bounds_are_quantiles_of_resampled_means() -> None:
    assert attainment_of(1, [0.5, 0.5, 0.5], 0.95).low == 0.5
    two = attainment_of(1, [0.0, 1.0], 0.95)
    assert (two.low, two.mean, two.high) == (0.0, 0.5, 1.0), "a quarter of all resamples has 0 twice"
    many = attainment_of(1, [0.0, 1.0] * 50, 0.95)
    assert many.low == pytest.approx(0.5 - 1.645 * 0.05, abs=0.01), "normal, with the deviation 0.5 / √100"
    assert many.high == pytest.approx(0.5 + 1.645 * 0.05, abs=0.01)


def test_too_much_for_any_number_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "MAX_DEVICES", 4)
    with pytest.raises(CapacityError, match=r"4 devices keep 50.0% of the promises; 90.0% are asked"):
        least_devices(lambda *_: 0.5, 0.9, num_trials=2, confidence=0.95)
