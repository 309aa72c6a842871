"""Blockwise quantization: a tensor kept as one byte a number and one scale a block.

Sources: Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization", Sections 2.1 to 2.3
(block-wise and dynamic quantization); Dettmers 2016, "8-Bit Approximations for Parallelism in Deep
Learning", Section 2 (the dynamic tree data type).
"""

import functools

import torch
from torch import Tensor

from utils.require import whole_number

BLOCK_SIZE = 256  # numbers a block, as bitsandbytes takes for optimizer states
_SMALLEST_EXPONENT = -6  # seven powers of ten: 10**-6 ... 10**0


def linear_codebook(signed: bool = True) -> Tensor:
    """Return evenly spaced codes from -1 to 1 (255 of them), or from 0 to 1 (256) if not `signed`.

    Zero is one of them. Shape (255,) or (256,), float32, sorted.
    """
    _require_bool("signed", signed)
    return torch.arange(-127, 128) / 127 if signed else torch.arange(256) / 255


def dynamic_codebook(signed: bool = True) -> Tensor:
    """Return the 256 sorted codes of the dynamic (tree) data type, float32, shape (256,).

    Each power of ten from 10**-6 to 1 has evenly spaced codes between a tenth of it and itself, and
    twice as many as the power below: 1, 2, 4, ... 64 for each sign if `signed`, otherwise 2, 4, ...
    128. They are the middles of their intervals. 0 and 1 are added. A signed codebook lacks -1: its
    lowest code is -0.993.
    Source: Section 2.2 of the 2022 paper; bit for bit bitsandbytes' `create_dynamic_map`.
    """
    _require_bool("signed", signed)
    parts = [torch.tensor([0.0, 1.0])]
    for exponent in range(_SMALLEST_EXPONENT, 1):
        intervals = 2 ** (exponent - _SMALLEST_EXPONENT + (0 if signed else 1))
        edges = torch.linspace(0.1, 1, intervals + 1)
        middles = 10.0**exponent * ((edges[:-1] + edges[1:]) / 2)
        parts += [middles, -middles] if signed else [middles]
    return torch.cat(parts).sort().values


def blockwise_absmax(tensor: Tensor, block_size: int = BLOCK_SIZE) -> Tensor:
    """Return the largest absolute value of each block: float32, shape (blocks,).

    Blocks are runs of `block_size` numbers of the flattened tensor; the last may be shorter. An
    empty tensor has no block.
    Raises: ValueError for a block size below 1 or a tensor that is not real floating point.
    """
    return _absmax(_blocks(tensor, block_size))


def _absmax(blocks: Tensor) -> Tensor:
    return torch.maximum(blocks.amax(dim=1), -blocks.amin(dim=1))


def quantize_blockwise(
    tensor: Tensor, codebook: Tensor, block_size: int = BLOCK_SIZE
) -> tuple[Tensor, Tensor]:
    """Return `(codes, absmax)`: the place of each number's nearest code, and each block's scale.

        absmax[b] = max |x| over block b
        codes[i]  = argmin over c of |x[i] / absmax[b] - codebook[c]|

    `codes` is uint8 in the shape of `tensor`, `absmax` float32 of shape (blocks,): n + 4 * blocks
    bytes. Half-way numbers take the lower code. A block of zeros has the scale 0 and the code
    nearest to 0.
    Raises: ValueError for NaN or infinity (their block would be lost), for a codebook that is not
    sorted or has not 2 to 256 codes, for a block size below 1, and for a tensor that is not real
    floating point.
    Source: Section 2.1, equations 2 and 3.
    """
    _check_codebook(codebook)
    blocks = _blocks(tensor, block_size)
    absmax = _absmax(blocks)
    if not torch.isfinite(absmax).all():  # a NaN or an infinity is the largest of its block
        raise ValueError("tensor holds NaN or infinity, which has no code")
    # A scale below the smallest normal number would make the quotient overflow or lose its digits.
    scale = absmax.clamp(min=torch.finfo(torch.float32).tiny)
    codes = nearest_code(blocks / scale[:, None], codebook)
    return codes.flatten()[: tensor.numel()].view(tensor.shape), absmax


def nearest_code(normalized: Tensor, codebook: Tensor) -> Tensor:
    """Return, as uint8, the place of the code in the sorted `codebook` nearest to each number.

    Numbers half-way between two codes take the lower one. The shape is that of `normalized`, which
    is float32.
    """
    middles = (codebook[1:] + codebook[:-1]) / 2
    table = _first_codes(codebook.cpu().numpy().tobytes()) if normalized.is_cpu else None
    if table is None:
        return torch.bucketize(normalized, middles, out_int32=True).to(torch.uint8)
    # `bucketize` searches the middles number by number. A table look-up and one comparison give the
    # same codes five times as fast.
    numbers = normalized.contiguous().flatten()
    place = (numbers.view(torch.int32) >> 16).add_(2**15)
    codes = table.index_select(0, place)
    ends = torch.cat([middles, middles.new_full((1,), torch.inf)])
    codes += numbers > ends.index_select(0, codes.int())
    return codes.view(normalized.shape)


@functools.lru_cache(maxsize=16)
def _first_codes(codebook: bytes) -> Tensor | None:
    """Return the lowest nearest code of the float32 numbers that share their upper 16 bits.

    Those numbers differ by less than 1%, so that the codes of most codebooks change at most once
    among them. Shape (65536,), uint8, by the upper half as a signed number plus 2**15. None for a
    codebook so dense that it changes more often.
    """
    codes = torch.frombuffer(bytearray(codebook), dtype=torch.float32)
    middles = (codes[1:] + codes[:-1]) / 2
    upper = torch.arange(-(2**15), 2**15, dtype=torch.int32) << 16
    ends = torch.stack([upper.view(torch.float32), (upper | 0xFFFF).view(torch.float32)])
    places = torch.bucketize(ends, middles)
    lowest, highest = places.amin(dim=0), places.amax(dim=0)
    highest = torch.where(ends.isfinite().all(dim=0), highest, lowest)  # the others never occur
    return lowest.to(torch.uint8) if int((highest - lowest).max()) <= 1 else None


def dequantize_blockwise(
    codes: Tensor, absmax: Tensor, codebook: Tensor, block_size: int = BLOCK_SIZE
) -> Tensor:
    """Return the float32 numbers that the codes stand for: codebook[code] * absmax of its block.

    `codes` uint8 of any shape, `absmax` (blocks,), the result in the shape of `codes`.
    Raises: ValueError for codes that are not uint8 or not in the codebook, or if `absmax` has
    another number of blocks than `codes`.
    """
    _check_codebook(codebook)
    _check_block_size(block_size)
    blocks = num_blocks(codes.numel(), block_size)
    if codes.dtype != torch.uint8 or absmax.shape != (blocks,):
        raise ValueError(
            f"codes must be uint8 and absmax of shape ({blocks},) for {codes.numel()} codes in "
            f"blocks of {block_size}, got {codes.dtype} and {tuple(absmax.shape)}"
        )
    if len(codebook) < 256 and codes.numel() and int(codes.max()) >= len(codebook):
        raise ValueError(f"code {int(codes.max())} is not in a codebook of {len(codebook)}")
    numbers = codebook.index_select(0, codes.flatten().int())
    full = numbers.numel() // block_size * block_size
    numbers[:full].view(-1, block_size).mul_(absmax[: full // block_size, None])
    if full < numbers.numel():
        numbers[full:].mul_(absmax[-1])
    return numbers.view(codes.shape)


def num_blocks(elements: int, block_size: int = BLOCK_SIZE) -> int:
    """Return how many blocks hold `elements` numbers: the last may be shorter."""
    return -(-elements // block_size)


def _blocks(tensor: Tensor, block_size: int) -> Tensor:
    """Return the numbers as a float32 matrix, one block a row; the last is filled up with zeros."""
    _check_block_size(block_size)
    if not tensor.is_floating_point():
        raise ValueError(f"tensor must be real floating point, got {tensor.dtype}")
    flat = tensor.detach().reshape(-1).float()
    missing = num_blocks(flat.numel(), block_size) * block_size - flat.numel()
    return torch.nn.functional.pad(flat, (0, missing)).view(-1, block_size)


def _check_block_size(block_size: int) -> None:
    whole_number("block_size", block_size)


def _check_codebook(codebook: Tensor) -> None:
    known = codebook.ndim == 1 and 2 <= len(codebook) <= 256 and codebook.dtype == torch.float32
    if not known or not bool((codebook[1:] > codebook[:-1]).all()):
        raise ValueError(
            "codebook must hold 2 to 256 different float32 codes in rising order, got "
            f"shape {tuple(codebook.shape)} and {codebook.dtype}"
        )


def _require_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")


@functools.cache
def shared_codebook(signed: bool, device: torch.device) -> Tensor:
    """Return the one dynamic codebook of a device that all optimizers share: 1,024 bytes."""
    return dynamic_codebook(signed).to(device)
