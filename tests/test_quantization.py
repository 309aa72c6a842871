"""Blockwise quantization: bitsandbytes' codebook, exact nearest codes, one scale a block."""

import pytest
import torch
from bitsandbytes import functional as bnb
from hypothesis import given
from hypothesis import strategies as st

from utils.optimizers import (
    blockwise_absmax,
    dequantize_blockwise,
    dynamic_codebook,
    linear_codebook,
    nearest_code,
    num_blocks,
    quantize_blockwise,
)

CODEBOOKS = {
    "linear signed": linear_codebook(),
    "linear unsigned": linear_codebook(signed=False),
    "dynamic signed": dynamic_codebook(),
    "dynamic unsigned": dynamic_codebook(signed=False),
    "two codes": torch.tensor([-1.0, 1.0]),
    "too dense for the table": torch.linspace(0.5, 0.5001, 256),
}


def heavy_tailed(elements: int, seed: int = 0) -> torch.Tensor:
    """Return numbers over many powers of ten, as an optimizer's moments are."""
    noise = torch.Generator().manual_seed(seed)
    sizes = 10 ** (torch.rand(elements, generator=noise) * 7 - 7)
    return torch.randn(elements, generator=noise) * sizes


@pytest.mark.parametrize("signed", [True, False])
def test_dynamic_codebook_is_the_librarys_bit_for_bit(signed):
    theirs = bnb.create_dynamic_map(signed=signed)
    assert torch.equal(dynamic_codebook(signed), torch.as_tensor(theirs, dtype=torch.float32))


def test_codebooks_as_described():
    signed, unsigned = dynamic_codebook(), dynamic_codebook(signed=False)
    for codebook in (signed, unsigned):
        assert codebook.shape == (256,)
        assert (codebook.diff() > 0).all()
        assert codebook[-1] == 1
        assert (codebook == 0).sum() == 1
    assert abs(signed[0].item() + 0.993) < 1e-3
    assert unsigned[0] == 0
    assert [int(((unsigned > 10.0 ** (e - 1)) & (unsigned < 10.0**e)).sum()) for e in range(-6, 1)] == [
        2, 4, 8, 16, 32, 64, 128,
    ]  # fmt: skip
    assert torch.equal(linear_codebook(), -linear_codebook().flip(0))
    assert linear_codebook()[127] == 0
    assert len(linear_codebook()) == 255
    assert torch.equal(linear_codebook(signed=False), torch.arange(256) / 255)


@pytest.mark.parametrize("name", CODEBOOKS)
def test_codes_are_the_nearest(name):
    codebook = CODEBOOKS[name]
    edges = (codebook[1:] + codebook[:-1]) / 2
    near = torch.cat([torch.nextafter(edges, edges + 1), torch.nextafter(edges, edges - 1)])
    numbers = torch.cat(
        [torch.rand(20_000) * 2 - 1, heavy_tailed(20_000).clamp(-1, 1), edges, near]
    )
    gaps = (numbers[:, None].double() - codebook.double()).abs()
    chosen = gaps.gather(1, nearest_code(numbers, codebook).long()[:, None])[:, 0]
    # Half-way numbers are as near to either code, but for the rounding of the middle itself.
    torch.testing.assert_close(chosen, gaps.amin(dim=1), rtol=0, atol=1e-7)
    assert torch.equal(nearest_code(codebook, codebook), torch.arange(len(codebook)).byte())
    assert torch.equal(nearest_code(numbers, codebook), torch.bucketize(numbers, edges).byte())


def test_a_number_half_way_takes_the_lower_code():
    assert nearest_code(torch.tensor([0.0, 0.5]), torch.tensor([-1.0, 0.0, 1.0])).tolist() == [1, 1]


def test_by_hand():
    """Blocks of 2 with codes -1, 0, 1: the scales are 4, 0 and 0.5; 1.9 is nearer to 0 than to 4."""
    codebook = torch.tensor([-1.0, 0.0, 1.0])
    codes, absmax = quantize_blockwise(torch.tensor([1.9, -4, 0, 0, 0.5]), codebook, block_size=2)
    assert codes.tolist() == [1, 0, 1, 1, 2]
    assert absmax.tolist() == [4, 0, 0.5]
    back = dequantize_blockwise(codes, absmax, codebook, block_size=2)
    assert back.tolist() == [0, -4, 0, 0, 0.5]


@pytest.mark.parametrize("name", ["linear signed", "dynamic signed"])
@given(
    elements=st.integers(0, 700),
    block_size=st.sampled_from([1, 7, 64, 256, 1000]),
    seed=st.integers(0, 1000),
)
def test_error_is_at_most_half_a_gap(name, elements, block_size, seed):
    """Every number comes back within half the widest gap of its own block's scale: the tail too."""
    codebook = CODEBOOKS[name]
    numbers = heavy_tailed(elements, seed)
    codes, absmax = quantize_blockwise(numbers, codebook, block_size)
    assert codes.shape == numbers.shape
    assert absmax.shape == (num_blocks(elements, block_size),)
    back = dequantize_blockwise(codes, absmax, codebook, block_size)
    scales = absmax.repeat_interleave(block_size)[:elements]
    assert ((back - numbers).abs() <= scales * (codebook.diff().max() / 2 + 1e-6)).all()
    for block, scale in zip(numbers.split(block_size), absmax, strict=False):
        assert not len(block) or scale == block.abs().max()


def test_scales_are_of_absolute_values_and_of_their_own_block():
    numbers = torch.tensor([1.0, -8.0, 2.0, 0.25, -0.5])
    assert blockwise_absmax(numbers, 2).tolist() == [8, 2, 0.5]
    assert blockwise_absmax(numbers, 5).tolist() == [8]
    assert blockwise_absmax(torch.empty(0, 3)).shape == (0,)
    numbers[0] = 100.0
    assert blockwise_absmax(numbers, 2).tolist() == [100, 2, 0.5]


def test_zeros_and_tiny_numbers():
    codes, absmax = quantize_blockwise(torch.zeros(2, 300), dynamic_codebook())
    assert absmax.eq(0).all()
    assert dequantize_blockwise(codes, absmax, dynamic_codebook()).eq(0).all()
    for size in (1e-45, 1e-40, 1e-38, 3e38):  # denormal numbers keep a finite quotient, too
        numbers = torch.tensor([size, -size / 2])
        codes, absmax = quantize_blockwise(numbers, dynamic_codebook())
        back = dequantize_blockwise(codes, absmax, dynamic_codebook())
        assert back.isfinite().all()
        assert (back - numbers).abs().max() <= size


def test_shape_layout_and_dtype():
    matrix = heavy_tailed(600).view(20, 30)
    codebook = dynamic_codebook()
    codes, absmax = quantize_blockwise(matrix, codebook)
    assert codes.shape == (20, 30)
    assert codes.dtype == torch.uint8
    assert absmax.dtype == torch.float32
    flat, _ = quantize_blockwise(matrix.flatten(), codebook)
    assert torch.equal(codes.flatten(), flat)
    turned, _ = quantize_blockwise(matrix.t(), codebook)
    assert torch.equal(turned, quantize_blockwise(matrix.t().contiguous(), codebook)[0])
    half, scale = quantize_blockwise(matrix.bfloat16(), codebook)
    assert torch.equal(half, quantize_blockwise(matrix.bfloat16().float(), codebook)[0])
    assert scale.dtype == torch.float32


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("elements", [255, 4096, 10_000])
def test_states_agree_with_the_library(signed, elements):
    """The same scales; the same codes, but where the library's search table is too coarse.

    bitsandbytes on the CPU looks codes up in a table with steps of 2**-15 of the block's scale. So
    its code is the nearest one to some number at most such a step away.
    """
    numbers = heavy_tailed(elements) if signed else heavy_tailed(elements).abs()
    codebook = dynamic_codebook(signed)
    ours, absmax = quantize_blockwise(numbers, codebook)
    theirs, state = bnb.quantize_blockwise(numbers, code=codebook, blocksize=256)
    assert torch.equal(absmax, state.absmax)
    normalized = numbers / absmax.repeat_interleave(256)[:elements]
    lowest = nearest_code(normalized - 2**-15, codebook)
    highest = nearest_code(normalized + 2**-15, codebook)
    assert ((lowest <= theirs) & (theirs <= highest)).all()
    large = normalized.abs() > 0.1  # there the gaps between codes are far wider than a step
    assert (ours == theirs)[large].float().mean() > 0.97
    assert ((ours.int() - theirs.int()).abs() <= 1)[large].all()
    back = dequantize_blockwise(theirs, state.absmax, codebook)
    assert torch.equal(back, bnb.dequantize_blockwise(theirs, state))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_no_code_for_nan_and_infinity(bad):
    for place in (0, 255, 256, 299):
        numbers = torch.ones(300)
        numbers[place] = bad
        with pytest.raises(ValueError, match="NaN or infinity"):
            quantize_blockwise(numbers, dynamic_codebook())


def test_bad_input_is_named():
    codebook = dynamic_codebook()
    numbers = torch.ones(300)
    for wrong in (torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.complex64)):
        with pytest.raises(ValueError, match=f"floating point, got {wrong.dtype}"):
            quantize_blockwise(wrong, codebook)
    for wrong in (
        codebook.flip(0),
        torch.zeros(4),
        codebook[:1],
        codebook.double(),
        torch.ones(300),
    ):
        with pytest.raises(ValueError, match="rising order"):
            quantize_blockwise(numbers, wrong)
    for wrong in (0, -1, 2.0, True, None):
        with pytest.raises(ValueError, match="block_size"):
            quantize_blockwise(numbers, codebook, wrong)
    codes, absmax = quantize_blockwise(numbers, codebook)
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        dequantize_blockwise(codes, absmax[:1], codebook)
    with pytest.raises(ValueError, match=r"torch\.int32"):
        dequantize_blockwise(codes.int(), absmax, codebook)
    with pytest.raises(ValueError, match="code 255 is not in a codebook of 255"):
        dequantize_blockwise(torch.full((300,), 255).byte(), absmax, linear_codebook())
    with pytest.raises(ValueError, match="signed must be True or False"):
        dynamic_codebook(1)
