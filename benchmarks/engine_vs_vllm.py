"""Our engine beside vLLM's CPU build: the same weights, the same points, on one machine, in turn.

    python benchmarks/engine_vs_vllm.py --peer DIR [--points 1x32x128,…] [--rounds 2] [--plot FILE.svg]

DIR is a virtual environment with vLLM's CPU build. The peer runs twice a round: as it comes, and with both cores bound
and tcmalloc and iomp preloaded where they are installed; the better of the two counts. Each engine is a process of its
own, so that neither keeps caches or threads from the other's turn. Prints one JSON line a point: medians and the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.progress import Progress
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from shared.config import ClusterConfig, model_path

POINTS = "1x32x128,8x128x128,64x256x128,128x512x64"
TIMEOUT_S = 1800

PEER = """
import json, os, random, sys, time
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
from vllm import LLM, SamplingParams
if __name__ == "__main__":
    llm = LLM(sys.argv[1], dtype="bfloat16", max_model_len=2048, max_num_seqs=256, disable_log_stats=True)
    numbers = random.Random(0)
    def prompts(count, length):
        return [{"prompt_token_ids": [numbers.randrange(1000, 40000) for _ in range(length)]} for _ in range(count)]
    for point in sys.argv[2].split(","):
        count, num_in, num_out = map(int, point.split("x"))
        llm.generate(prompts(2, num_in), SamplingParams(max_tokens=4, temperature=0), use_tqdm=False)
        asked = prompts(count, num_in)
        start = time.perf_counter()
        llm.generate(asked, SamplingParams(max_tokens=num_out, temperature=0, ignore_eos=True), use_tqdm=False)
        seconds = time.perf_counter() - start
        print(json.dumps({"point": point, "tok_s": count * num_out / seconds}), flush=True)
"""


def export_model(folder: Path) -> None:
    """The served GGUF as a Hugging Face directory in bfloat16, which is what the peer reads."""
    source = model_path(ClusterConfig().models[0])
    metadata = load_gguf_checkpoint(str(source), return_tensors=False)
    model = LlamaForCausalLM(LlamaConfig(**metadata["config"]))
    model.load_state_dict(load_gguf_checkpoint(str(source), True, model)["tensors"], strict=False)
    model.tie_weights()
    model.bfloat16().save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)


def run(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Tokens per second by point, from the JSON lines that a benchmark process prints."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["point"]: line["tok_s"] for line in lines if "point" in line}


def ours(points: str, threads: int) -> dict[str, float]:
    """One turn of our engine."""
    script = Path(__file__).with_name("engine_points.py")
    return run([sys.executable, str(script), "--points", points, "--threads", str(threads)], {})


def peer_environments(peer: Path, threads: int) -> dict[str, dict[str, str]]:
    """How the peer is started: as it comes, and at its best."""
    found = [*Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"), peer / "lib" / "libiomp5.so"]
    preload = [str(file) for file in found if file.exists()]
    best = {
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "LD_PRELOAD": ":".join(preload),
    }
    return {"vllm": {}, "vllm-tuned": best}


def plot(lines: list[dict[str, float | str]], file: Path) -> None:
    """Bars of the ratios, as a plain SVG."""
    width, height, bar = 640, 300, 90
    top = max(float(line["ratio"]) for line in lines)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">']
    parts.append(f'<rect width="{width}" height="{height}" fill="#fff"/>')
    parts.append('<text x="20" y="24" font-size="15">Treadle / vLLM-CPU, output tokens per second</text>')
    for number, line in enumerate(lines):
        tall = 200 * float(line["ratio"]) / top
        x = 40 + number * (bar + 50)
        parts.append(f'<rect x="{x}" y="{260 - tall:.0f}" width="{bar}" height="{tall:.0f}" fill="#4a7"/>')
        parts.append(f'<text x="{x}" y="{252 - tall:.0f}" font-size="13">{line["ratio"]} ×</text>')
        parts.append(f'<text x="{x}" y="280" font-size="12">{line["point"]}</text>')
    file.write_text("\n".join([*parts, "</svg>"]))


def main() -> None:
    """Rounds of all engines in turn, then medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--points", default=POINTS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    environments = peer_environments(arguments.peer, arguments.threads)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ("treadle", *environments)}
    with tempfile.TemporaryDirectory() as folder, Progress() as progress:
        task = progress.add_task("rounds", total=arguments.rounds * len(found))
        export_model(Path(folder, "model"))
        peer_script = Path(folder, "peer.py")
        peer_script.write_text(PEER)
        command = [str(arguments.peer / "bin/python"), str(peer_script), str(Path(folder, "model")), arguments.points]
        for _ in range(arguments.rounds):
            found["treadle"].append(ours(arguments.points, arguments.threads))
            progress.advance(task)
            for name, environment in environments.items():
                found[name].append(run(command, environment))
                progress.advance(task)
    lines = []
    for point in arguments.points.split(","):
        medians = {name: statistics.median(turn[point] for turn in turns) for name, turns in found.items()}
        peer = max(medians[name] for name in environments)
        line: dict[str, float | str] = {"point": point, **{name: round(rate, 1) for name, rate in medians.items()}}
        lines.append({**line, "ratio": round(medians["treadle"] / peer, 2)})
        print(json.dumps(lines[-1]), flush=True)
    if arguments.plot:
        plot(lines, arguments.plot)


if __name__ == "__main__":
    main()
