"""The regressions that AdaptiveLLM compares (§3.2): eight regressors on polynomial features of degree 1 to 10.

Needs scikit-learn (the extra ``profile``). What engines get of it is a table (`gpu_node.engine.measures.cost_table`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeRegressor

DEGREES = range(1, 11)
NUM_TREES = 10
NUM_STAGES = 50
PENALTY = 1e-4
"""Of costs in units of their mean."""
REGRESSORS: dict[str, Callable[[], object]] = {
    "linear": LinearRegression,
    "ridge": lambda: Ridge(PENALTY),
    "lasso": lambda: Lasso(PENALTY),
    "elastic net": lambda: ElasticNet(PENALTY),
    "decision tree": lambda: DecisionTreeRegressor(random_state=0),
    "random forest": lambda: RandomForestRegressor(NUM_TREES, random_state=0),
    "gradient boosting": lambda: GradientBoostingRegressor(n_estimators=NUM_STAGES, random_state=0),
    "nearest neighbours": lambda: KNeighborsRegressor(2, weights="distance"),
}


@dataclass(frozen=True, slots=True)
class Features:
    """Of one measurement."""

    num_layers: int
    hidden_size: int
    size: int
    """Tokens, or blocks."""
    batch: int = 1

    @property
    def row(self) -> tuple[int, int, int, int]:
        """As a regression has it."""
        return self.num_layers, self.hidden_size, self.size, self.batch


@dataclass(frozen=True, slots=True)
class Fitted:
    """The regressor that was best on held-out data."""

    regressor: str
    degree: int
    held_out_error: float
    """Mean of |predicted / measured - 1|, as the paper has it."""
    predict: Callable[[Features], float]


def best_fit(fitted: Sequence[tuple[Features, float]], held_out: Sequence[tuple[Features, float]]) -> Fitted:
    """All regressors with all degrees; costs in seconds. Features that do not vary tell nothing and are left out."""
    rows = np.array([features.row for features, _ in fitted], dtype=float)
    varying = [column for column in range(rows.shape[1]) if len(set(rows[:, column])) > 1]
    seconds = np.array([cost for _, cost in fitted])
    unit = float(seconds.mean())
    others = np.array([features.row for features, _ in held_out], dtype=float)[:, varying]
    truth = np.array([cost for _, cost in held_out])
    weights = (unit / seconds) ** 2  # relative errors count, whatever the size
    best: Fitted | None = None
    for name, make in REGRESSORS.items():
        for degree in DEGREES:
            model = make_pipeline(PolynomialFeatures(degree, include_bias=False), StandardScaler(), make())
            last = model.steps[-1][0]
            given = {} if name == "nearest neighbours" else {f"{last}__sample_weight": weights}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # a fit that is not the best is not taken
                model.fit(rows[:, varying], seconds / unit, **given)
            error = float(np.mean(np.abs(model.predict(others) * unit / truth - 1)))
            if best is None or error < best.held_out_error:
                best = Fitted(name, degree, error, _predictor(model, varying, unit))
    assert best is not None
    return best


def _predictor(model: object, varying: list[int], unit: float) -> Callable[[Features], float]:
    def predict(features: Features) -> float:
        row = np.array([features.row], dtype=float)[:, varying]
        return max(0.0, float(model.predict(row)[0]) * unit)  # type: ignore[attr-defined]

    return predict
