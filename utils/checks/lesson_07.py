"""Checks of lesson 07: codebook, block scales, moments in 8 bits, bytes of a model."""

import torch
from torch import Tensor, nn

from utils.checks.core import Case, Misconception, check_function, exercise, require_attempt
from utils.checks.on_models import (
    MODELS,
    TIED,
    TiedModel,
    check_on_models,
    tied_twice,
    trainable,
)
from utils.optimizers import (
    dequantize_blockwise,
    dynamic_codebook,
    num_blocks,
    quantize_blockwise,
)

THRESHOLD, BLOCK, MAPS = 4096, 256, 2048


def _codes(
    parts=lambda e, signed: 2 ** (e + 6) if signed else 2 ** (e + 7),
    exponents=range(-6, 1),
    low=lambda e: 10.0 ** (e - 1),
    points=lambda edges: (edges[1:] + edges[:-1]) / 2,
    extra=(0.0, 1.0),
    mirror=lambda middles, signed: [middles, -middles] if signed else [middles],
    order=lambda codes: codes.sort().values,
):
    """Return a function that builds the codebook with one of its rules replaced."""

    def build(signed):
        codes = [torch.tensor(extra)]
        for e in exponents:
            edges = torch.linspace(low(e), 10.0**e, parts(e, signed) + 1)
            codes += mirror(points(edges), signed)
        return order(torch.cat(codes))

    return build


@exercise("7.1")
def codebook(answer) -> str:
    """Check `codebook(signed)`: the 256 dynamic codes in rising order."""
    misconceptions = [
        Misconception(
            _codes(order=lambda codes: codes),
            "the codes are right, but not sorted. The search for the nearest code needs the order.",
        ),
        Misconception(
            _codes(order=lambda codes: codes.sort(descending=True).values),
            "the codes are right, from the largest to the smallest; turn them round.",
        ),
        Misconception(_codes(extra=(1.0,)), "0 is missing."),
        Misconception(_codes(extra=(0.0,)), "1 is missing: the largest number of a block."),
        Misconception(_codes(extra=()), "0 and 1 are missing."),
        Misconception(_codes(extra=(-1.0, 0.0, 1.0)), "-1 is no code: only 0 and 1 are added."),
        Misconception(
            _codes(points=lambda edges: edges[1:]), "you took the upper edges, not the middles."
        ),
        Misconception(
            _codes(points=lambda edges: edges[:-1]), "you took the lower edges, not the middles."
        ),
        Misconception(
            _codes(points=lambda edges: edges), "you took the edges of the parts, not the middles."
        ),
        Misconception(
            _codes(parts=lambda e, signed: 2 ** (e + 6)),
            "without negative codes there is room for twice as many parts.",
        ),
        Misconception(
            _codes(parts=lambda e, signed: 2 ** (e + 7)),
            "signed codes have half as many parts, since each code is there twice.",
        ),
        Misconception(
            _codes(parts=lambda e, signed: 2 ** (e + 7) if signed else 2 ** (e + 6)),
            "signed and unsigned are exchanged: the unsigned codebook has the finer parts.",
        ),
        Misconception(
            _codes(mirror=lambda middles, signed: [middles]), "the negative codes are missing."
        ),
        Misconception(
            _codes(mirror=lambda middles, signed: [middles, -middles]),
            "an unsigned codebook has no negative codes.",
        ),
        Misconception(
            lambda signed: _codes()(True),
            "that is the signed codebook in both cases; an unsigned one has no negative codes.",
        ),
        Misconception(
            _codes(exponents=range(-6, 0)), "the topmost power of ten, up to 1, is missing."
        ),
        Misconception(
            _codes(exponents=range(-5, 1)), "the lowest power of ten, up to 10**-6, is missing."
        ),
        Misconception(
            _codes(low=lambda e: 0.0), "each interval starts at a tenth of its end, not at 0."
        ),
    ]
    cases = [Case("signed=True", (True,)), Case("signed=False", (False,))]
    return check_function(answer, dynamic_codebook, cases, misconceptions, tolerance=1e-5)


def _scales(of=lambda block: block.abs().max(), cut=lambda flat, size: flat.split(size)):
    return lambda tensor, size: torch.stack([of(block) for block in cut(tensor.flatten(), size)])


def _without_rest(flat, size):
    return flat[: len(flat) // size * size].split(size)


def _rest_joined(flat, size):
    whole = len(flat) // size
    pieces = list(flat[: (whole - 1) * size].split(size)) if whole > 1 else []
    return [*pieces, flat[max(whole - 1, 0) * size :]]


def _scale_cases() -> list[Case]:
    row = torch.tensor([3.0, -8.0, 1.0, 2.0, 0.5, 4.0])
    matrix = torch.tensor([[1.0, -2.0, 3.0], [-9.0, 0.25, 6.0], [0.0, -0.5, 0.125]])
    return [
        Case("6 numbers in blocks of 2", (row, 2)),
        Case("6 numbers in blocks of 4: the last has 2", (row, 4)),
        Case("a 3 x 3 matrix in blocks of 4: the last has 1", (matrix, 4)),
        Case("negative numbers only, blocks of 3", (-row.abs(), 3)),
        Case("a block of zeros", (torch.tensor([0.0, 0.0, 5.0, -7.0, 1.0]), 2)),
        Case("fewer numbers than a block", (-row, 256)),
        Case("blocks of 1", (matrix, 1)),
    ]


@exercise("7.2")
def block_scales(answer) -> str:
    """Check `block_scales(tensor, block_size)`: the absmax of each block, the last one shorter."""
    misconceptions = [
        Misconception(
            _scales(of=torch.max),
            "a negative number can be the largest in size: take absolute values first.",
        ),
        Misconception(
            _scales(of=lambda block: block.max().abs()),
            "take absolute values before the maximum, not after it.",
        ),
        Misconception(
            _scales(cut=_without_rest),
            "the numbers after the last full block have no scale; they are a shorter block.",
        ),
        Misconception(
            _scales(cut=_rest_joined),
            "the rest is a block of its own; you joined it to the last full one.",
        ),
        Misconception(
            _scales(of=lambda block: block.abs().mean()), "the scale is the maximum, not the mean."
        ),
        Misconception(
            _scales(of=lambda block: block.max() - block.min()),
            "the scale is the largest absolute value, not the range.",
        ),
        Misconception(_scales(of=lambda block: -block.abs().max()), "a scale is not negative."),
        Misconception(
            lambda tensor, size: tensor.abs().amax(dim=-1),
            "blocks are runs of `block_size` numbers of the flattened tensor, not its rows.",
        ),
        Misconception(
            lambda tensor, size: tensor.abs().max().reshape(1),
            "this is one scale for the whole tensor.",
        ),
        Misconception(
            lambda tensor, size: torch.stack([b.abs().max() for b in tensor.flatten().chunk(size)]),
            "`chunk(n)` makes n blocks; `split(n)` makes blocks of n numbers.",
        ),
    ]
    errors = {
        "invalid for input of size": "a view needs blocks that are all full; the last may not be.",
        "equal size": "the last block is shorter; take its maximum before you stack.",
    }
    return check_function(
        answer, _scales(), _scale_cases(), misconceptions, tolerance=1e-6, error_hints=errors
    )


def _moments(
    first_books=(True, True),
    second_books=(False, False),
    mix_first=lambda m, g, beta: beta * m + (1 - beta) * g,
    mix_second=lambda v, g, beta: beta * v + (1 - beta) * g**2,
    betas=lambda beta1, beta2: (beta1, beta2),
    scales=lambda new, old: new,
    order=lambda m, v: (m, v),
):
    """Return an update of quantized moments with one of its parts replaced.

    The books say, for reading and for writing, whether the codebook is signed.
    """

    def update(first, second, gradient, beta1, beta2):
        beta1, beta2 = betas(beta1, beta2)
        results = []
        for pair, books, mix, beta in (
            (first, first_books, mix_first, beta1),
            (second, second_books, mix_second, beta2),
        ):
            read, write = (dynamic_codebook(signed) for signed in books)
            codes, absmax = quantize_blockwise(
                mix(dequantize_blockwise(*pair, read), gradient, beta), write
            )
            results.append((codes, scales(absmax, pair[1])))
        return order(*results)

    return update


def _read(pairs) -> tuple:
    """Return the numbers and scales of both moments, so that a code is compared by what it means."""
    try:
        first, second = pairs
        numbers = [
            dequantize_blockwise(*pair, dynamic_codebook(signed))
            for pair, signed in ((first, True), (second, False))
        ]
        return (numbers[0], first[1], numbers[1], second[1])
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            "two pairs are expected, each of uint8 codes and one float32 scale for each 256 "
            f"numbers. {error}"
        ) from None


def moment_cases() -> list[Case]:
    """Return the cases of exercise 7.3; no new moment lies near the border of two codes."""
    noise = torch.Generator().manual_seed(7)

    def pair(numbers: Tensor, signed: bool):
        return quantize_blockwise(numbers, dynamic_codebook(signed))

    cases = []
    for label, shape, beta1, beta2, fresh in (
        ("zero moments, 10 numbers", (10,), 0.9, 0.999, True),
        ("earlier moments, 5 x 4 numbers", (5, 4), 0.8, 0.9, False),
        ("earlier moments, 300 numbers: two blocks, the second shorter", (300,), 0.9, 0.95, False),
    ):
        old, gradient = (torch.randn(shape, generator=noise) for _ in range(2))
        scale = 0.0 if fresh else 1.0
        first, second = pair(old * scale, True), pair(old.square() * scale * 0.5, False)
        cases.append(Case(label, (first, second, gradient, beta1, beta2)))
    return cases


@exercise("7.3")
def update_moments(answer) -> str:
    """Check `update_moments(first, second, gradient, beta1, beta2)`: both pairs after a gradient."""
    wrong = {
        "the second moment is written with the signed codes; it is never negative.": _moments(
            second_books=(False, True)
        ),
        "the second moment is read with the signed codes.": _moments(second_books=(True, False)),
        "the second moment is read and written with the signed codes; it is never negative and "
        "takes the unsigned ones.": _moments(second_books=(True, True)),
        "the first moment has both signs: it takes the signed codes.": _moments(
            first_books=(False, False)
        ),
        "the first moment is written with the unsigned codes.": _moments(first_books=(True, False)),
        "the gradient is not squared in the second moment.": _moments(
            mix_second=lambda v, g, beta: beta * v + (1 - beta) * g
        ),
        "the shares are the wrong way round: beta is the share of the old moment.": _moments(
            mix_first=lambda m, g, beta: (1 - beta) * m + beta * g,
            mix_second=lambda v, g, beta: (1 - beta) * v + beta * g**2,
        ),
        "the betas are swapped: beta1 is for the first moment.": _moments(
            betas=lambda beta1, beta2: (beta2, beta1)
        ),
        "the old scales are returned; the new codes belong to the new scales.": _moments(
            scales=lambda new, old: old
        ),
        "the new gradient's share, 1 - beta, is missing.": _moments(
            mix_first=lambda m, g, beta: beta * m + g,
            mix_second=lambda v, g, beta: beta * v + g**2,
        ),
        "the old moments are lost: read them back first.": _moments(
            mix_first=lambda m, g, beta: (1 - beta) * g,
            mix_second=lambda v, g, beta: (1 - beta) * g**2,
        ),
        "the two pairs are exchanged: return the first moment first.": _moments(
            order=lambda m, v: (v, m)
        ),
    }

    def read(function):
        return lambda *args: _read(function(*args))

    return check_function(
        _blank_or(answer, read),
        read(_moments()),
        moment_cases(),
        [Misconception(read(function), hint) for hint, function in wrong.items()],
        tolerance=1e-4,
        error_hints={
            "two pairs are expected": "return quantize_blockwise(...) for each of the moments.",
            "real floating point": "codes are bytes: read them back before you compute.",
        },
    )


def _blank_or(answer, wrap):
    """Return the wrapped answer; a blank or no function at all goes to the check as it is."""
    require_attempt(answer)
    return wrap(answer) if callable(answer) else answer


def quantized_bytes(model: nn.Module) -> int:
    """Return the bytes of bitsandbytes' AdamW8bit for `model`, by the formula."""
    return _bytes(trainable(model))


def _bytes(parameters, small=lambda n: n < THRESHOLD, blocks=num_blocks, moments=2, maps=None):
    sizes = [parameter.numel() for parameter in parameters]
    quantized = [n for n in sizes if not small(n)]
    total = sum(8 * n for n in sizes if small(n))
    total += sum(moments * (n + 4 * blocks(n)) for n in quantized)
    return total + (MAPS * bool(quantized) if maps is None else maps(quantized))


def _large_and_small() -> nn.Module:
    return nn.Sequential(nn.Linear(100, 50), nn.LayerNorm(50), nn.Linear(50, 64, bias=False))


def _partly_frozen() -> nn.Module:
    model = _large_and_small()
    model[0].requires_grad_(False)
    return model


_SIZES = {
    "a matrix of 5,000 numbers, a LayerNorm, a matrix of 3,200": _large_and_small,
    "the same with its first layer frozen": _partly_frozen,
    "the same in bfloat16": lambda: _large_and_small().bfloat16(),
    "a matrix of exactly 4,096 numbers": lambda: nn.Linear(64, 64, bias=False),
    "a matrix of 4,095 numbers": lambda: nn.Linear(65, 63, bias=False),
    "two large matrices": lambda: nn.Sequential(nn.Linear(70, 90), nn.Linear(90, 70)),
    "a token table of 6,000 numbers tied to the output layer": lambda: TiedModel(200, 30),
    **MODELS,
}


@exercise("7.4")
def adam_8bit_bytes(answer) -> str:
    """Check `adam_8bit_bytes(model)`: bytes of AdamW8bit after its first step."""
    wrong = {
        "tensors with fewer than 4,096 numbers keep both moments in 32 bits: 8 bytes a "
        "number.": lambda m: _bytes(trainable(m), small=lambda n: False),
        "a tensor of exactly 4,096 numbers is quantized; only smaller ones are not.": (
            lambda m: _bytes(trainable(m), small=lambda n: n <= THRESHOLD)
        ),
        "the last block may be shorter, but it has a scale as well: round up.": lambda m: _bytes(
            trainable(m), blocks=lambda n: n // BLOCK
        ),
        "a full last block needs no further block after it.": lambda m: _bytes(
            trainable(m), blocks=lambda n: n // BLOCK + 1
        ),
        "the scales are missing: 4 bytes for each block and moment.": lambda m: _bytes(
            trainable(m), blocks=lambda n: 0
        ),
        "a scale is a float32: 4 bytes, not 1.": lambda m: _bytes(
            trainable(m), blocks=lambda n: num_blocks(n) / 4
        ),
        "there are two moments.": lambda m: _bytes(trainable(m), moments=1),
        "the codebooks are missing: 2,048 bytes, once.": lambda m: _bytes(
            trainable(m), maps=lambda quantized: 0
        ),
        "all tensors share one pair of codebooks; count it once.": lambda m: _bytes(
            trainable(m), maps=lambda quantized: MAPS * len(quantized)
        ),
        "there are two codebooks, of 1,024 bytes each.": lambda m: _bytes(
            trainable(m), maps=lambda quantized: MAPS // 2 * bool(quantized)
        ),
        "where nothing is quantized there are no codebooks.": lambda m: _bytes(
            trainable(m), maps=lambda quantized: MAPS
        ),
        "frozen parameters have no state.": lambda m: _bytes(m.parameters()),
        TIED: lambda m: _bytes(tied_twice(m)),
        "you decided for the model as a whole; each tensor is quantized or not by its own "
        "size.": lambda m: _whole(trainable(m)),
        "that is AdamW's state: 8 bytes a parameter.": lambda m: _bytes(
            trainable(m), small=lambda n: True
        ),
    }
    return check_on_models(
        answer, quantized_bytes, [Misconception(f, hint) for hint, f in wrong.items()], _SIZES
    )


def _whole(parameters) -> int:
    n = sum(parameter.numel() for parameter in parameters)
    return 8 * n if n < THRESHOLD else 2 * (n + 4 * num_blocks(n)) + MAPS
