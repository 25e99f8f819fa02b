"""How a step crosses into the C interface."""

from __future__ import annotations

from ctypes import Structure, c_char_p, c_int32, c_void_p


class StepInput(Structure):
    """A step as the C interface takes it."""

    _fields_ = (
        ("num_sequences", c_int32),
        ("starts", c_void_p),
        ("num_rows", c_void_p),
        ("num_blocks", c_void_p),
        ("block_tables", c_void_p),
        ("token_ids", c_void_p),
        ("adapters", c_void_p),
        ("num_remotes", c_int32),
        ("remotes", c_char_p),
        ("remote_moves", c_void_p),
        ("lost", c_void_p),
        ("num_draw_rows", c_int32),
        ("draw_rows", c_void_p),
        ("num_draws", c_int32),
        ("draws", c_char_p),
        ("biases", c_char_p),
        ("prior_tokens", c_void_p),
        ("masks", c_char_p),
        ("num_late_mask_bytes", c_int32),
        ("late_masks", c_void_p),
        ("late_masks_given", c_void_p),
        ("first_cell", c_int32),
        ("num_copies", c_int32),
        ("copies", c_void_p),
        ("num_swaps_out", c_int32),
        ("swaps_out", c_void_p),
        ("num_swaps_in", c_int32),
        ("swaps_in", c_void_p),
        ("num_copies_out", c_int32),
        ("copies_out", c_void_p),
        ("tokens", c_void_p),
        ("logprobs", c_void_p),
        ("top_tokens", c_void_p),
        ("top_logprobs", c_void_p),
        ("logits", c_void_p),
        ("in_lanes", c_int32),
        ("moves_beside", c_int32),
    )
