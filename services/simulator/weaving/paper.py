"""What Weaver (ATC'25) publishes of its evaluation: to calibrate with, and to stand beside ours."""

from __future__ import annotations

LM_HEAD_S = 961e-6
"""§3.1: the longest operator of a step of Llama-3-8B that decodes, on an A100 of 40 GiB."""
MAX_TOKENS = 2_048
"""Of prompt and answer together: so much of Azure-Conv has the answers, 232 tokens, that follow from the next rows."""

DEDICATED_15 = {"hot_batch": 118, "hot_kv_share": 0.889, "hot_tpot_s": 33.8e-3}
"""§5.1: batch = rate x tokens of an answer x time per token."""
WOVEN_15 = {"hot_kv_share": 0.469, "remote_kv_share": 0.367}
WOVEN_22 = {"hot_batch": 231, "hot_tpot_s": 45.2e-3}
COLD_PER_HOT = 1 / 15
"""Requests of the cold model for one of the hot model."""

RATIO = 0.45
"""Of the sequences that are remote, the best (figure 5b)."""
MAX_RATE_RATIO_DEDICATED = 1.60
"""Figure 4, the most."""
MAX_RATE_RATIO_PARALLEL = {"nvlink": 1.22, "pcie": 1.77}
"""Figure 4, beside MuxServe, which cuts both models by tensor parallelism over both devices."""
PARALLEL_OVERHEAD = 0.26
"""Table 1, the most that cutting a model in two costs."""
LONG_OUTPUT_LENGTHS = (512, 1_024)
LONG_OUTPUT_RATIO_PARALLEL = 1.42
LONG_OUTPUT_COLD_S = 8e-3
"""Figure 6: on top of the cold model's time per token, at most."""
HALF_OFFLOADED = {"hot_tpot_change": -0.13, "cold_tpot_more_s": 3.7e-3}
"""Figure 5b, at a ratio of one half."""
COLD_TPOT_MORE_S = (3e-3, 5e-3)
"""§5.1, where the hot model is busy."""
LOAD_CHANGES = {"least_loaded": -0.15, "others": (-0.40, -0.20)}
"""Figure 5a, of the hot model's time per token as rates of both models vary; which rates, the text does not say."""
CONTROL = {"host_tpot_s": 175e-3, "polls_speedup": 4.83, "splits_change": -0.095}
"""Figure 7a, hot model."""
CONTROL_COLD_S = {"polls": 1.8e-3, "splits": 0.7e-3}
"""Figure 7a, each on top of the cold model's time per token before."""
