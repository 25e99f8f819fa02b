"""What each kind of operator does, in a few words for someone who sees a transformer's step for the first time."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_node.graph.program import OperatorKind

WHAT_IT_DOES: Mapping[OperatorKind, str] = {
    OperatorKind.EMBEDDING: "look up a row for each token id (or position)",
    OperatorKind.SEGMENT_EMBEDDING: "look up a row for the text of a pair that each token is of",
    OperatorKind.RMS_NORM: "scale each row to size 1",
    OperatorKind.HEAD_NORM: "scale each head to size 1",
    OperatorKind.LAYER_NORM: "shift and scale each row to mean 0, size 1",
    OperatorKind.LINEAR: "multiply each row with a matrix",
    OperatorKind.LINEAR_BIAS: "multiply each row with a matrix, add a row",
    OperatorKind.LINEAR_ADD: "multiply each row with a matrix, add to what was there",
    OperatorKind.GATED_LINEAR: "multiply twice, let one product gate the other",
    OperatorKind.LORA: "add what each row's adapter makes of its input",
    OperatorKind.ROPE_ANGLES: "how far each position turns queries and keys",
    OperatorKind.SCALED_ROPE_ANGLES: "how far each position turns queries and keys, slowed for long texts",
    OperatorKind.ROPE: "turn by position, so that products tell distance",
    OperatorKind.WRITE_KV: "keep keys and values for the tokens to come",
    OperatorKind.ROPE_WRITE_KV: "turn by position, then keep keys and values",
    OperatorKind.PAGED_ATTENTION: "mix the values of all tokens before, by how their keys match",
    OperatorKind.WINDOW_ATTENTION: "mix the values of the last tokens, by how their keys match",
    OperatorKind.BIDIRECTIONAL_ATTENTION: "mix the values of all tokens of the text, by how their keys match",
    OperatorKind.BIDIRECTIONAL_WINDOW_ATTENTION: "mix the values of the nearest tokens, by how their keys match",
    OperatorKind.SILU_MUL: "let the gate decide how much passes",
    OperatorKind.ERF_GELU_MUL: "let the gate decide how much passes (GELU)",
    OperatorKind.RELU: "let pass what is positive",
    OperatorKind.GELU: "let pass what is positive, softly",
    OperatorKind.ERF_GELU: "let pass what is positive, softly (exact)",
    OperatorKind.TANH: "press into -1 to 1",
    OperatorKind.ROUTE: "choose experts for each row",
    OperatorKind.EXPERTS: "run each row through its experts",
    OperatorKind.ADD: "add to what the row was before",
    OperatorKind.ADD_BIAS: "add the same to each row",
    OperatorKind.SELECT_DRAWS: "go on with the rows that draw a token",
    OperatorKind.SELECT_FIRST: "go on with each text's first row",
    OperatorKind.MEAN_POOL: "take the mean of each text's rows",
    OperatorKind.ALL_REDUCE: "sum what the devices of the group have",
    OperatorKind.ALL_GATHER: "put side by side what the devices of the group have",
    OperatorKind.COPY_OUT: "copy full KV blocks of the layer to the host",
    OperatorKind.POLL: "serve what waits for the device, if anything does",
    OperatorKind.SEND: "ask the device that keeps their keys and values to attend for remote rows",
    OperatorKind.GATHER: "wait for what that device has attended to",
}
