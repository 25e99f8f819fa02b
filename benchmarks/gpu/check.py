"""Are the CUDA kernels right on this machine, and how fast? Needs no network and no model files.

    python benchmarks/gpu/check.py [--interpret] [--output result.json]

Every kernel against the reference in float64 on random cases, its outputs poisoned before; then the machine's copy
bandwidth and bf16 matrix rate, decode attention in GB/s and prefill attention in TFLOP/s beside torch's attention on
contiguous tensors. Writes JSON, prints a table last, and ends with 1 if a kernel is wrong. ``--interpret`` checks the
kernels alone, tiny, by Triton's interpreter, where there is no device: then nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path


def main() -> int:
    """Check, measure, report."""
    parser = argparse.ArgumentParser(description="Checks and measures the CUDA kernels.")
    parser.add_argument("--interpret", action="store_true", help="check the kernels by Triton's interpreter")
    parser.add_argument("--output", type=Path, default=Path("gpu-check.json"), help="where the JSON goes")
    given = parser.parse_args()
    if given.interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, so nothing that does is imported above
    import torch
    import triton

    if not given.interpret and not torch.cuda.is_available():
        sys.exit(
            f"no CUDA device for torch {torch.__version__}; on a machine that has one, install a build of torch with "
            f"CUDA. To check the kernels without a device: --interpret"
        )
    import cases
    import speeds

    device = torch.device("cpu" if given.interpret else "cuda")
    checks = cases.check_all(device)
    rates = [] if given.interpret else speeds.measure_all(device)
    machine = {
        "device": platform.processor() if given.interpret else torch.cuda.get_device_name(device),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "interpreted": given.interpret,
    }
    result = {"machine": machine, "kernels": [check.row() for check in checks], "rates": [rate.row() for rate in rates]}
    given.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(machine))
    for one in (*checks, *rates):
        print(one.line())
    num_wrong = sum(not check.is_right for check in checks)
    print(f"{num_wrong} of {len(checks)} kernels wrong" if num_wrong else f"all {len(checks)} kernels right")
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
