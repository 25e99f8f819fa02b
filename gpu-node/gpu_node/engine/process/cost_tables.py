"""From a kept predictor to the tables that an engine decides by."""

from __future__ import annotations

from gpu_node.engine.measures.cost_table import CostTable
from gpu_node.engine.measures.kv_costs import KvCostTables
from shared.config.predictors import Predictor, PredictorError, PredictorTable


def cost_tables(predictor: Predictor) -> KvCostTables:
    """Raises `PredictorError` where a table is none."""
    try:
        return KvCostTables(
            prompt=_table(predictor.prompt),
            chunk=_table(predictor.chunk),
            move_out=_table(predictor.move_out),
            move_in=_table(predictor.move_in),
        )
    except ValueError as error:
        raise PredictorError(
            f"the predictor of {predictor.model!r} on {predictor.device!r} is broken: {error}; "
            f"run `treadle profile --model {predictor.model}` again"
        ) from error


def _table(table: PredictorTable) -> CostTable:
    return CostTable(tuple(table.sizes), tuple(table.seconds))
