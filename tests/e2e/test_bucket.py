"""A cluster whose models lie in an object storage: fetched by `treadle up` and `treadle apply`, then served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from openai import OpenAI

from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import model_path
from tests.cli.object_store import ACCESS_KEY, SECRET, ObjectStore, serving
from tests.cli.whole_model import write_adapter, write_whole
from tests.e2e.cluster import Cluster

FILE = "s3://models/tiny/tiny.gguf"
LEGAL = "s3://models/adapters/legal/"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """With a model and an adapter of it."""
    adapter = write_adapter(tmp_path / "legal")
    objects = {f"adapters/legal/{file.name}": file.read_bytes() for file in adapter.iterdir()}
    objects["tiny/tiny.gguf"] = write_whole(tmp_path / "tiny.gguf").read_bytes()
    with serving(ObjectStore(objects)) as store:
        yield store


@pytest.fixture
def cluster(store: ObjectStore, tmp_path: Path) -> Iterator[Cluster]:
    """Not started yet; its commands find the storage as AWS's tools do."""
    models = [{"name": "tiny", "source": FILE, "max_model_len": 256}]
    engine = {"kv_cache_bytes": 64 << 20}
    cluster = Cluster.create(tmp_path, models=models, nodes=[{"name": "node-0", "num_threads": 1}], engine=engine)
    cluster.environment = {
        "AWS_ENDPOINT_URL_S3": store.url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_EC2_METADATA_DISABLED": "true",
        "TREADLE_MODELS_DIR": str(tmp_path / "models"),
    }
    yield cluster
    cluster.down()


def num_answered(cluster: Cluster, model: str) -> int:
    with OpenAI(base_url=f"{cluster.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.completions.create(
            model=model, prompt=list(b"abc"), max_tokens=4, temperature=0, extra_body={"ignore_eos": True}
        )
    assert answer.usage is not None
    return answer.usage.completion_tokens


def test_models_and_adapters_of_a_bucket_are_served(
    cluster: Cluster, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_MODELS_DIR", str(tmp_path / "models"))
    said = cluster.up()
    fetched = model_path(ModelSpec(name="tiny", source=FILE))
    assert f"pulled {fetched}" in said
    assert num_answered(cluster, "tiny") == 4

    (tiny,) = cluster.config["models"]
    adapted = tiny | {"name": "adapted", "adapters": [{"name": "legal", "source": LEGAL}]}
    cluster.config_file.write_text(yaml.safe_dump(cluster.config | {"models": [tiny, adapted]}))
    applied = cluster.treadle("apply")
    assert applied.returncode == 0, applied.stderr
    assert f"pulled {model_path(AdapterSpec('legal', LEGAL))}" in applied.stderr
    assert [num_answered(cluster, name) for name in ("tiny", "adapted", "legal")] == [4, 4, 4]

    store.objects["tiny/tiny.gguf"] += b" "
    refused = cluster.treadle("apply")
    assert refused.returncode != 0
    assert f"{FILE} has changed since it was fetched" in refused.stderr
    texts = [said, applied.stderr, refused.stderr, *cluster.logs().values()]
    assert not any(secret in text for secret in (SECRET, ACCESS_KEY) for text in texts)
