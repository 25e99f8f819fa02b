"""Buffers as kernels meet them: columns of a wider one, with poison wherever nobody has written."""

from __future__ import annotations

import torch

from gpu_node.kernels.triton.launch import INTERPRETED

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")

FLOAT32_ERROR = 1e-5
"""Sums of some hundred float32 products, each rounded to 2 ** -24."""
BFLOAT16_ERROR = 2**-7
"""Numbers of 8 bits, which the interpreter cuts off instead of rounding them."""
ERRORS = {torch.float32: FLOAT32_ERROR, torch.bfloat16: BFLOAT16_ERROR}
TYPES = list(ERRORS)

_MARGIN = 3


class Buffer:
    """[rows, columns] in the middle of a wider buffer, NaN all around it."""

    def __init__(self, num_rows: int, num_columns: int, dtype: torch.dtype = torch.float32) -> None:
        self._whole = torch.full((num_rows, num_columns + 2 * _MARGIN), torch.nan, dtype=dtype, device=DEVICE)
        self.view = self._whole[:, _MARGIN : _MARGIN + num_columns]

    @classmethod
    def of(cls, values: torch.Tensor) -> Buffer:
        """With these numbers in it."""
        num_rows, num_columns = values.shape
        buffer = cls(num_rows, num_columns, values.dtype)
        buffer.view.copy_(values)
        return buffer

    def written(self) -> torch.Tensor:
        """The numbers as float64; nothing beside them may have been written."""
        beside = torch.cat((self._whole[:, :_MARGIN], self._whole[:, -_MARGIN:]), dim=1)
        assert bool(beside.isnan().all())
        return self.view.double().cpu()


def error(ours: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative error of the whole against float64; NaN where a single number is."""
    assert ours.shape == expected.shape
    assert expected.dtype == torch.float64
    return float((ours.double().cpu() - expected).norm() / (expected.norm() + 1e-30))


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random, on the device."""
    return torch.randn(shape).to(dtype).to(DEVICE)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """For the reference: float64, on the CPU."""
    return tensor.double().cpu()
