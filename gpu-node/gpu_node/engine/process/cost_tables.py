"""From a kept predictor to the tables that an engine decides by."""

from __future__ import annotations

from gpu_node.engine.measures.cost_table import CostTable
from gpu_node.engine.measures.kv_costs import KvCostTables
from shared.config.config import ClusterConfig
from shared.config.measured.predictors import (
    PredictorError,
    PredictorTable,
    ShapeTables,
    device_predictor_file,
    predictor_file,
    read_device_predictor,
    read_predictor,
)
from shared.config.nodes.nodes import NodeSpec


def kept_tables(config: ClusterConfig, node: NodeSpec, device: str) -> dict[str, KvCostTables]:
    """By model, as far as `treadle profile` has measured on such a node: its own, or what several models tell of it."""
    of_device = read_device_predictor(device_predictor_file(config, device), config, node, device)
    found = {}
    for spec in config.models:
        predictor = read_predictor(predictor_file(config, device, spec.name), config, spec, node, device)
        if predictor is not None:
            tables: ShapeTables | None = predictor.tables
        else:
            tables = of_device.tables(spec) if of_device is not None else None
        if tables is not None:
            found[spec.name] = cost_tables(tables, spec.name)
    return found


def cost_tables(shape: ShapeTables, model: str) -> KvCostTables:
    """Raises `PredictorError` where a table is none."""
    try:
        return KvCostTables(
            prompt=_table(shape.prompt),
            chunk=_table(shape.chunk),
            move_out=_table(shape.move_out),
            move_in=_table(shape.move_in),
        )
    except ValueError as error:
        raise PredictorError(
            f"the predictor of {model!r} is broken: {error}; run `treadle profile --model {model}` again"
        ) from error


def _table(table: PredictorTable) -> CostTable:
    return CostTable(tuple(table.sizes), tuple(table.seconds))
