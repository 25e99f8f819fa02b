"""What several models that were profiled on a node tell of all configured ones: one regression a cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cli.cluster.run_dir import write_atomically
from gpu_node.bench.report import CostSamples
from shared.config.config import ClusterConfig
from shared.config.measured.predictors import DevicePredictor, PredictedModel, device_predictor_file, encode_predictor
from shared.config.nodes.nodes import NodeSpec
from shared.files.model_file import model_path


def keep_device_predictor(
    config: ClusterConfig, node: NodeSpec, device: str, weights: str, measured: Mapping[str, CostSamples]
) -> tuple[Path, DevicePredictor]:
    """Fit it, and write it where engines look.

    It speaks of the configured models with such ``weights`` whose files are here.
    """
    from gpu_node.bench.predictors.tables import ModelSamples, device_tables  # scikit-learn takes a second to import
    from gpu_node.models.checkpoint import open_checkpoint

    shapes = {name: (one.num_layers, one.hidden_size) for name, one in measured.items()}
    specs = {spec.name: spec for spec in config.models if spec.weights == weights}
    for spec in specs.values():
        if spec.name not in shapes and model_path(spec).exists():
            shape = open_checkpoint(model_path(spec)).config
            shapes[spec.name] = shape.num_layers, shape.hidden_size
    samples = [ModelSamples(one.num_layers, one.hidden_size, one.samples) for one in measured.values()]
    tables = device_tables(samples, set(shapes.values()))
    predictor = DevicePredictor(
        device=device,
        executor=node.executor,
        num_threads=node.num_threads,
        tensor_parallel=node.tensor_parallel,
        block_size=config.engine.block_size,
        measured=list(measured),
        models={
            name: PredictedModel(specs[name].source, specs[name].weights, tables[shape])
            for name, shape in shapes.items()
            if name in specs
        },
    )
    path = device_predictor_file(config, device)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, encode_predictor(predictor))
    return path, predictor


def device_words(predictor: DevicePredictor) -> str:
    """How good it is, of all measured models together."""
    tables = next(iter(predictor.models.values())).tables
    named = (
        ("a prompt alone", tables.prompt),
        ("a chunk", tables.chunk),
        ("blocks out", tables.move_out),
        ("blocks in", tables.move_in),
    )
    fits = "\n".join(
        f"{name}: {one.regressor}, degree {one.degree}; error {one.held_out_error:.1%} held out, "
        f"repetitions differ by {one.repeatability:.1%}"
        for name, one in named
    )
    return f"over {', '.join(predictor.measured)} together:\n{fits}"
