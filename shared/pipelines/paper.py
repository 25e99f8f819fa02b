"""What NanoFlow (OSDI'25) publishes: tables and labels of figures, to calibrate with and to stand beside ours.

The text says in places otherwise than its own figures. 280 TFLOP/s would give an optimum of 2,000 tokens/s, the printed
1,857 is that of 260; overlapping the network gains 7 %, with memory 17 %, splitting alone costs 13.2 % by the text, but
14 % and 14-22 %, 8-12 % by the labels of figure 9. The labels hold here.
"""

from __future__ import annotations

from shared.pipelines.batch import MeanLengths

MEASURED_FLOPS_PER_S = {"a100": 260e12}
"""Of one device, by the best products of 2,048 rows (§3.5)."""

NAMED_PARAMETERS = {
    "llama-2-70b": 70e9,
    "llama-3-70b": 70e9,
    "llama-3-8b": 8e9,
    "llama-3.1-405b": 405e9,
    "qwen2-72b": 72e9,
    "deepseek-67b": 67e9,
}
"""P of equations 2 and 5, as the paper takes it (§3.5: "70B"); of other models, those that a row is multiplied with."""

TABLE_2_ROWS = 2048
TABLE_2_LENGTHS = MeanLengths(512, 1024)
"""Follows from the operations of its attention: 1,365 decodes with 1,024 tokens on average, 683 rows of prompts."""
TABLE_2_REAL_S = {
    "KQV": 16.08e-3,
    "O": 16.01e-3,
    "UG": 69.92e-3,
    "D": 34.96e-3,
    "DecAttn": 35.60e-3,
    "PfAttn": 4.56e-3,
    "Net": 47.92e-3,
}
"""Measured on eight A100, all 80 layers of Llama-2-70B."""

LAYER_S = {"non_overlap": 2920e-6, "nanoflow": 2486e-6}
"""Figure 10: one layer of Llama-2-70B."""

CONSTANT_LENGTHS = {
    "512-512": MeanLengths(512, 512),
    "1024-512": MeanLengths(1024, 512),
    "512-1024": MeanLengths(512, 1024),
}
TRACE_LENGTHS = {
    "Splitwise": MeanLengths(1155, 211),
    "LMSYS-Chat": MeanLengths(102, 222),
    "ShareGPT": MeanLengths(246, 322),
}
"""Table 4, means."""

FIGURE_2 = {"llama-3-8b": 0.477, "llama-2-70b": 0.273, "qwen2-72b": 0.265, "llama-3.1-405b": 0.148}
"""Network time : compute time on eight A100."""

FIGURE_3_ORDER = ("LMSYS-Chat", "Splitwise", "ShareGPT", "512-512", "1024-512", "512-1024")
FIGURE_3 = {
    ("llama-3-8b", 1): (0.23, 0.31, 0.37, 0.61, 0.68, 1.09),
    ("mixtral-8x7b", 8): (0.12, 0.17, 0.20, 0.32, 0.36, 0.58),
    ("llama-2-70b", 8): (0.07, 0.09, 0.11, 0.18, 0.20, 0.32),
    ("llama-3-70b", 8): (0.07, 0.09, 0.11, 0.18, 0.20, 0.32),
    ("qwen2-72b", 8): (0.07, 0.09, 0.11, 0.18, 0.20, 0.31),
}
"""T_R on A100, by model and number of devices."""

FIGURE_7 = {
    "512-512": 1286,
    "1024-512": 1263,
    "512-1024": 1212,
    "Splitwise": 1259,
    "LMSYS-Chat": 1247,
    "ShareGPT": 1272,
}
"""Tokens/s of a device, NanoFlow with offloading."""

FIGURE_9_LENGTHS = {"512-0": MeanLengths(512, 0), **CONSTANT_LENGTHS}
FIGURE_9 = {
    "512-0": (1273, 1171, 1446, 1402),
    "512-512": (1106, 982, 1323, 1290),
    "1024-512": (1092, 958, 1291, 1259),
    "512-1024": (1048, 952, 1277, 1244),
}
"""Tokens/s of a device: non-overlap, nano-batches alone, NanoFlow, NanoFlow with offloading."""

FIGURE_11 = {
    ("llama-3-70b", 8): 1306,
    ("qwen2-72b", 8): 1213,
    ("deepseek-67b", 8): 1147,
    ("mixtral-8x7b", 8): 5188,
    ("llama-3-8b", 1): 12_756,
}
"""Tokens/s of a device, 1,024 tokens in and 512 out."""
