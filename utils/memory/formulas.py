"""State per parameter after an optimizer's first step, one formula for each algorithm.

Each formula yields `(state name, elements, bytes per element)` for one parameter that receives a
gradient. The formulas were derived from the libraries' sources (torch 2.13, transformers 5.24,
bitsandbytes 0.50, torchao 0.16) and each is tested against the bytes that a real step leaves
behind. Python numbers, such as the int `step` of transformers and bitsandbytes, are no tensors and
take none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch

from utils.memory.parameters import step_counter_bytes

Entry = tuple[str, int, int]


@dataclass(frozen=True)
class Weight:
    """A parameter as a formula sees it. Its tensors need not exist."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    grad_dtype: torch.dtype

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def factored_elements(self) -> tuple[int, int]:
        """Elements of the row and of the column statistics over the last two dimensions."""
        *batch, rows, columns = self.shape
        return prod(batch) * rows, prod(batch) * columns


def adam(weight: Weight, amsgrad: bool = False, fused: bool = False) -> Iterator[Entry]:
    """Yield the state of torch's Adam and AdamW: step, two moments, with `amsgrad` a third tensor.

    Bytes: 2ns + 4, or 3ns + 4, for n elements of s bytes; for-loop, foreach, fused and capturable
    alike.
    """
    yield "step", 1, step_counter_bytes(fused)
    for name in ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if amsgrad else ())):
        yield name, weight.elements, weight.dtype.itemsize


def sgd(weight: Weight, momentum: float = 0.0) -> Iterator[Entry]:
    """Yield the state of torch's SGD: a copy of the gradient if there is momentum, else nothing."""
    if momentum != 0:
        yield "momentum_buffer", weight.elements, weight.grad_dtype.itemsize


def rmsprop(weight: Weight, momentum: float = 0.0, centered: bool = False) -> Iterator[Entry]:
    """Yield the state of torch's RMSprop: step, one average, and one tensor for each option."""
    yield "step", 1, step_counter_bytes()
    yield "square_avg", weight.elements, weight.dtype.itemsize
    if momentum > 0:
        yield "momentum_buffer", weight.elements, weight.dtype.itemsize
    if centered:
        yield "grad_avg", weight.elements, weight.dtype.itemsize


def adagrad(weight: Weight, fused: bool = False) -> Iterator[Entry]:
    """Yield the state of torch's Adagrad: step and a sum. It is there from construction on."""
    yield "step", 1, step_counter_bytes(fused)
    yield "sum", weight.elements, weight.dtype.itemsize


def torch_adafactor(weight: Weight) -> Iterator[Entry]:
    """Yield the state of torch's Adafactor: step, and row and column statistics in the gradient's
    dtype.

    The last two dimensions are factored. Bytes: 4 + g * (rows + columns) for g bytes a gradient
    element, 4 + g * n for parameters of fewer than two dimensions. Raises ValueError where its
    step fails.
    """
    if weight.dtype.is_complex:
        raise ValueError("torch.optim.Adafactor does not support complex parameters")
    if weight.elements == 0:
        raise ValueError(
            "torch.optim.Adafactor divides by zero on an empty parameter, so it has no first step: "
            f"leave the parameter of shape {weight.shape} out of the optimizer"
        )
    yield "step", 1, step_counter_bytes()
    if len(weight.shape) < 2:
        yield "variance", weight.elements, weight.grad_dtype.itemsize
        return
    rows, columns = weight.factored_elements
    yield "row_var", rows, weight.grad_dtype.itemsize
    yield "col_var", columns, weight.grad_dtype.itemsize


def transformers_adafactor(weight: Weight, beta1: float | None = None) -> Iterator[Entry]:
    """Yield the state of transformers' Adafactor: row and column statistics, RMS, and a first
    moment if `beta1` is given.

    Half-precision gradients and parameters are converted to float32 first, so BF16 and FP16 save
    nothing.
    """
    half = {torch.float16, torch.bfloat16}
    statistic = 4 if weight.grad_dtype in half else weight.grad_dtype.itemsize
    # The norm of a complex tensor is real: half its element size.
    rms = 4 if weight.dtype in half else weight.dtype.itemsize // (1 + weight.dtype.is_complex)
    if beta1 is not None:
        yield "exp_avg", weight.elements, statistic
    if len(weight.shape) < 2:
        yield "exp_avg_sq", weight.elements, statistic
    else:
        rows, columns = weight.factored_elements
        yield "exp_avg_sq_row", rows, statistic
        yield "exp_avg_sq_col", columns, statistic
    yield "RMS", 1, rms


def muon(weight: Weight) -> Iterator[Entry]:
    """Yield the state of torch's Muon: one momentum buffer in the gradient's dtype."""
    if weight.dtype.is_complex:
        raise ValueError("torch.optim.Muon does not support complex parameters")
    yield "momentum_buffer", weight.elements, weight.grad_dtype.itemsize


def bitsandbytes(
    weight: Weight,
    widths: tuple[int, ...] = (1, 1),
    optim_bits: int = 8,
    min_8bit_size: int = 4096,
    max_unorm: float = 0.0,
) -> Iterator[Entry]:
    """Yield the state of a bitsandbytes optimizer, without the code maps that all parameters share.

    `widths` has one entry for each state: 1 for a tensor like the parameter, 2 for AdEMAMix's pair
    of first moments. Tensors under `min_8bit_size` elements, and all with `optim_bits=32`, are
    float32 whatever the weight's dtype. The others take one byte a value and one float32 absmax a
    block of 256 values: 2(n + 4 ceil(n / 256)) bytes for two states.
    """
    if optim_bits not in (8, 32):
        raise ValueError(f"bitsandbytes keeps states in 8 or 32 bits, got optim_bits={optim_bits}")
    quantized = optim_bits == 8 and weight.elements >= min_8bit_size
    for index, width in enumerate(widths, start=1):
        yield f"state{index}", width * weight.elements, 1 if quantized else 4
        if quantized:
            yield f"absmax{index}", width * -(-weight.elements // 256), 4
    if max_unorm > 0:
        yield "unorm_vec", 1, torch.get_default_dtype().itemsize


def own_adamw_8bit(weight: Weight, min_8bit_size: int) -> Iterator[Entry]:
    """Yield the state of `utils.optimizers.AdamW8bit`: bitsandbytes' layout and a step counter."""
    yield "step", 1, step_counter_bytes()
    yield from bitsandbytes(weight, min_8bit_size=max(min_8bit_size, 1))


def torchao(
    weight: Weight, bits: int, block_size: int, code_map: int, amsgrad: bool = False
) -> Iterator[Entry]:
    """Yield the state of torchao's low-bit Adam and AdamW.

    A tensor is quantized if it has at least 4,096 elements and `block_size` divides their number:
    n * bits / 8 bytes of codes, one scale a block, and its own map of `code_map` float32 values
    (256 for 8 bits, 16 for 4, none for FP8). Otherwise the state is a tensor like the parameter.
    Step and scales take the default dtype.
    """
    default = torch.get_default_dtype().itemsize
    n = weight.elements
    yield "step", 1, default
    for name in ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if amsgrad else ())):
        if n >= 4096 and n % block_size == 0:
            yield name, n * bits // 8, 1
            yield name, n // block_size, default
            if code_map:
                yield name, code_map, 4
        else:
            yield name, n, weight.dtype.itemsize
