"""Lengths of Azure's conversations, as Weaver's evaluation takes them (ATC'25, §5).

``azure2023_conv.csv.gz``: prompts and answers of the 16,528 requests with at most 2,048 tokens, out of the 19,366 of
``AzureLLMInferenceTrace_conv`` of github.com/Azure/AzurePublicDataset, published with Splitwise (Patel et al.,
ISCA'24); CC BY 4.0, © Microsoft. Changed: columns renamed, times and longer requests left out.
"""

from __future__ import annotations

from pathlib import Path

from services.simulator.weaving.arrivals import RequestLengths
from services.simulator.weaving.paper import MAX_TOKENS
from shared.files.length_trace import read_lengths

PATH = Path(__file__).with_name("azure2023_conv.csv.gz")


def azure_conversations() -> RequestLengths:
    """Tokens of each prompt and of its answer, in the order of the file."""
    return [(line.input_tokens, line.output_tokens) for line in read_lengths(PATH, MAX_TOKENS).lines]
