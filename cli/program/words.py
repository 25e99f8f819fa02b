"""What each kind of operator does, in a few words for someone who sees a transformer's step for the first time."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_node.graph.program import Kind

WHAT_IT_DOES: Mapping[Kind, str] = {
    Kind.EMBEDDING: "look up a row for each token id (or position)",
    Kind.RMS_NORM: "scale each row to size 1",
    Kind.HEAD_NORM: "scale each head to size 1",
    Kind.LAYER_NORM: "shift and scale each row to mean 0, size 1",
    Kind.LINEAR: "multiply each row with a matrix",
    Kind.LINEAR_BIAS: "multiply each row with a matrix, add a row",
    Kind.LINEAR_ADD: "multiply each row with a matrix, add to what was there",
    Kind.GATED_LINEAR: "multiply twice, let one product gate the other",
    Kind.ROPE_ANGLES: "how far each position turns queries and keys",
    Kind.SCALED_ROPE_ANGLES: "how far each position turns queries and keys, slowed for long texts",
    Kind.ROPE: "turn by position, so that products tell distance",
    Kind.WRITE_KV: "keep keys and values for the tokens to come",
    Kind.ROPE_WRITE_KV: "turn by position, then keep keys and values",
    Kind.PAGED_ATTENTION: "mix the values of all tokens before, by how their keys match",
    Kind.WINDOW_ATTENTION: "mix the values of the last tokens, by how their keys match",
    Kind.SILU_MUL: "let the gate decide how much passes",
    Kind.RELU: "let pass what is positive",
    Kind.GELU: "let pass what is positive, softly",
    Kind.ROUTE: "choose experts for each row",
    Kind.EXPERTS: "run each row through its experts",
    Kind.ADD: "add to what the row was before",
    Kind.ADD_BIAS: "add the same to each row",
    Kind.SELECT_DRAWS: "go on with the rows that draw a token",
    Kind.ALL_REDUCE: "sum what the devices of the group have",
    Kind.ALL_GATHER: "put side by side what the devices of the group have",
    Kind.POLL: "serve what waits for the device, if anything does",
}
