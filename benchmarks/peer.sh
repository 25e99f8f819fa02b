#!/usr/bin/env bash
# Makes the virtual environment of the peer that engine_vs_vllm.py compares with: the one that nodes with vLLM have.
#
#   benchmarks/peer.sh DIR        some minutes, 3 GB on disk; a second call completes what is missing
set -euo pipefail
exec "$(dirname "$0")/../gpu-node/vllm-env.sh" "$@"
