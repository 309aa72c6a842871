"""The checks of lesson 07: solution, blank, a second right answer and plausible wrong ones."""

import copy
import math

import bitsandbytes
import pytest
import torch
from bitsandbytes import functional as bnb

from tests.exercises import assert_verdict, blank, solution
from utils.checks import lesson_07 as checks
from utils.checks.core import NOT_ATTEMPTED, RIGHT, WRONG
from utils.memory import measure_optimizer_state
from utils.optimizers import dequantize_blockwise, dynamic_codebook, quantize_blockwise

LESSON = "07_adam_8bit"
GIVEN = {
    "torch": torch,
    "dynamic_codebook": dynamic_codebook,
    "quantize_blockwise": quantize_blockwise,
    "dequantize_blockwise": dequantize_blockwise,
}
SIGNED, UNSIGNED = dynamic_codebook(), dynamic_codebook(signed=False)


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def codes_by_numbers(signed):
    """Each middle on its own, in Python numbers."""
    codes = [0.0, 1.0]
    for e in range(-6, 1):
        parts = 2 ** (e + (6 if signed else 7))
        width = 0.9 * 10.0**e / parts
        middles = [10.0 ** (e - 1) + (k + 0.5) * width for k in range(parts)]
        codes += middles + ([-m for m in middles] if signed else [])
    return torch.tensor(sorted(codes))


def scales_by_padding(tensor, block_size):
    flat = tensor.flatten()
    missing = -len(flat) % block_size
    return torch.nn.functional.pad(flat.abs(), (0, missing)).view(-1, block_size).amax(dim=1)


def moments_by_lerp(first, second, gradient, beta1, beta2):
    m = dequantize_blockwise(*first, SIGNED).lerp(gradient, 1 - beta1)
    v = (
        dequantize_blockwise(*second, UNSIGNED)
        .mul(beta2)
        .addcmul(gradient, gradient, value=1 - beta2)
    )
    return [list(quantize_blockwise(m, SIGNED)), list(quantize_blockwise(v, UNSIGNED))]


def bytes_by_moments(model):
    """Codes, scales and codebooks summed one by one."""
    sizes = [p.numel() for p in trained(model)]
    codes = sum(2 * n if n >= 4096 else 8 * n for n in sizes)
    scales = sum(8 * math.ceil(n / 256) for n in sizes if n >= 4096)
    return codes + scales + 2 * 256 * 4 * int(max(sizes, default=0) >= 4096)


SECOND_ANSWERS = {
    "codebook": codes_by_numbers,
    "block_scales": scales_by_padding,
    "update_moments": moments_by_lerp,
    "adam_8bit_bytes": bytes_by_moments,
}


@pytest.mark.parametrize("name", SECOND_ANSWERS)
def test_solution_blank_and_a_second_right_answer(name):
    check = getattr(checks, name)
    assert_verdict(check, solution(LESSON, name, **GIVEN), RIGHT)
    assert_verdict(check, blank(LESSON, name, **GIVEN), NOT_ATTEMPTED)
    assert_verdict(check, SECOND_ANSWERS[name], RIGHT)


def test_the_librarys_codebook_is_right():
    assert_verdict(
        checks.codebook,
        lambda signed: torch.as_tensor(bnb.create_dynamic_map(signed=signed)),
        RIGHT,
    )


def measured_by_the_library(model):
    bitsandbytes.optim.GlobalOptimManager.get_instance().initialize()
    parameters = trained(copy.deepcopy(model))
    if not parameters:
        return 0
    optimizer = bitsandbytes.optim.AdamW8bit(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return measure_optimizer_state(optimizer).bytes


def test_the_expected_bytes_are_those_of_real_steps():
    assert_verdict(checks.adam_8bit_bytes, measured_by_the_library, RIGHT)


def codes(
    points=lambda edges: (edges[1:] + edges[:-1]) / 2, extra=(0.0, 1.0), both=True, order=True
):
    def answer(signed):
        found = [torch.tensor(extra)]
        for e in range(-6, 1):
            parts = 2 ** (e + (6 if signed or not both else 7))
            middles = points(torch.linspace(10.0 ** (e - 1), 10.0**e, parts + 1))
            found += [middles, -middles] if signed else [middles]
        found = torch.cat(found)
        return found.sort().values if order else found

    return answer


def scales(function):
    return lambda tensor, size: torch.stack([function(b) for b in tensor.flatten().split(size)])


def moments(read1=SIGNED, read2=UNSIGNED, write1=SIGNED, write2=UNSIGNED, power=2, swap=False):
    def answer(first, second, gradient, beta1, beta2):
        if swap:
            beta1, beta2 = beta2, beta1
        m = beta1 * dequantize_blockwise(*first, read1) + (1 - beta1) * gradient
        v = beta2 * dequantize_blockwise(*second, read2) + (1 - beta2) * gradient**power
        return quantize_blockwise(m, write1), quantize_blockwise(v, write2)

    return answer


def total(threshold=4096, blocks=lambda n: -(-n // 256), maps=2048, parameters=trained):
    def answer(model):
        sizes = [p.numel() for p in parameters(model)]
        size = sum(8 * n if n < threshold else 2 * (n + 4 * blocks(n)) for n in sizes)
        return size + (maps if any(n >= threshold for n in sizes) else 0)

    return answer


def all_names(model):
    return [p for _, p in model.named_parameters(remove_duplicate=False) if p.requires_grad]


def old_scales(first, second, gradient, beta1, beta2):
    new_first, new_second = moments()(first, second, gradient, beta1, beta2)
    return (new_first[0], first[1]), (new_second[0], second[1])


WRONG_ANSWERS = [
    ("codebook", codes(order=False), "not sorted"),
    ("codebook", lambda signed: codes()(signed).flip(0), "turn them round"),
    ("codebook", codes(points=lambda edges: edges[1:]), "upper edges"),
    ("codebook", codes(points=lambda edges: edges[:-1]), "lower edges"),
    ("codebook", codes(points=lambda edges: edges), "not the middles"),
    ("codebook", codes(both=False), "twice as many parts"),
    ("codebook", codes(extra=(1.0,)), "0 is missing"),
    ("codebook", codes(extra=(0.0,)), "1 is missing"),
    ("codebook", codes(extra=(-1.0, 0.0, 1.0)), "-1 is no code"),
    ("codebook", lambda signed: codes()(True), "no negative codes"),
    ("codebook", lambda signed: codes()(False), "signed=True"),
    ("codebook", lambda signed: torch.linspace(-1, 1, 256), "expected"),
    ("codebook", lambda signed: codes()(signed).tolist(), "A tensor is expected"),
    ("block_scales", scales(torch.max), "absolute values first"),
    ("block_scales", scales(lambda b: b.max().abs()), "before the maximum"),
    ("block_scales", scales(lambda b: b.abs().mean()), "not the mean"),
    ("block_scales", lambda t, n: t.abs().max().reshape(1), "one scale for the whole tensor"),
    (
        "block_scales",
        lambda t, n: t.flatten()[: t.numel() // n * n].view(-1, n).abs().amax(1),
        "are a shorter block",
    ),
    (
        "block_scales",
        lambda t, n: t.flatten().view(-1, n).abs().amax(dim=1),
        "blocks that are all full",
    ),
    (
        "block_scales",
        lambda t, n: torch.stack(t.flatten().split(n)).abs().amax(dim=1),
        "before you stack",
    ),
    (
        "block_scales",
        lambda t, n: torch.stack([b.abs().max() for b in t.flatten().chunk(n)]),
        "split",
    ),
    ("update_moments", moments(write2=SIGNED), "written with the signed codes"),
    ("update_moments", moments(read2=SIGNED), "read with the signed codes"),
    ("update_moments", moments(read2=SIGNED, write2=SIGNED), "takes the unsigned ones"),
    ("update_moments", moments(write1=UNSIGNED), "unsigned"),
    ("update_moments", moments(power=1), "not squared"),
    ("update_moments", moments(swap=True), "swapped"),
    ("update_moments", old_scales, "old scales"),
    ("update_moments", lambda *a: moments()(*a)[::-1], "exchanged"),
    ("update_moments", lambda *a: moments()(*a)[0], "two pairs"),
    (
        "update_moments",
        lambda f, s, g, b1, b2: (f[0] * b1 + (1 - b1) * g, s[0] * b2 + (1 - b2) * g**2),
        "quantize_blockwise",
    ),
    ("adam_8bit_bytes", total(threshold=0), "fewer than 4,096"),
    ("adam_8bit_bytes", total(threshold=4097), "exactly 4,096"),
    ("adam_8bit_bytes", total(blocks=lambda n: n // 256), "round up"),
    ("adam_8bit_bytes", total(blocks=lambda n: n // 256 + 1), "full last block"),
    ("adam_8bit_bytes", total(blocks=lambda n: 0), "scales are missing"),
    ("adam_8bit_bytes", total(maps=0), "codebooks are missing"),
    ("adam_8bit_bytes", total(maps=1024), "two codebooks"),
    ("adam_8bit_bytes", total(parameters=lambda m: m.parameters()), "frozen"),
    ("adam_8bit_bytes", total(parameters=all_names), "twice"),
    ("adam_8bit_bytes", lambda m: sum(8 * p.numel() for p in trained(m)), "AdamW's state"),
    ("adam_8bit_bytes", lambda m: total()(m.requires_grad_(False)), "expected"),
]


@pytest.mark.parametrize(
    ("name", "answer", "hint"),
    WRONG_ANSWERS,
    ids=[f"{name}-{hint[:20]}-{place}" for place, (name, _, hint) in enumerate(WRONG_ANSWERS)],
)
def test_wrong_answer_is_rejected_with_its_hint(name, answer, hint):
    assert_verdict(getattr(checks, name), answer, WRONG, hint)
