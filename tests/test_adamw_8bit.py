"""AdamW with moments in 8 bits: beside the library, beside 32 bits, and where 8 bits could hurt."""

import copy
import io

import bitsandbytes
import pytest
import torch
from torch import nn

from utils.memory import measure_optimizer_state
from utils.optimizers import AdamW, AdamW8bit, adamw_8bit_step_, dynamic_codebook, num_blocks

SHAPES = [(100, 50), (4100,), (64,), ()]


def gradients(shapes, steps, seed=3):
    """Return gradients for each step and shape; their sizes differ by up to a factor of 100."""
    noise = torch.Generator().manual_seed(seed)
    scales = [10 ** (torch.rand(shape, generator=noise) * 2 - 2) for shape in shapes]
    return [[torch.randn(s.shape, generator=noise) * s for s in scales] for _ in range(steps)]


def train(make, steps=20, shapes=SHAPES, dtype=torch.float32):
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]
    optimizer = make(params)
    for step in gradients(shapes, steps):
        for param, grad in zip(params, step, strict=True):
            param.grad = grad.to(dtype)
        optimizer.step()
    return [param.detach() for param in params], optimizer


def library(params, **options):
    return bitsandbytes.optim.AdamW8bit(params, **options)


@pytest.mark.parametrize(
    "options", [{}, {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-6, "weight_decay": 0.1}], ids=str
)
def test_first_step_equals_the_library(options):
    """The update comes before the rounding, so one step from zero moments is exact."""
    ours, optimizer = train(lambda p: AdamW8bit(p, **options), steps=1)
    theirs, other = train(lambda p: library(p, **options), steps=1)
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
    for param, twin in zip(optimizer.state.values(), other.state.values(), strict=True):
        for index, codebook in (("1", dynamic_codebook()), ("2", dynamic_codebook(signed=False))):
            if f"absmax{index}" not in param:
                torch.testing.assert_close(param[f"state{index}"], twin[f"state{index}"])
                continue
            torch.testing.assert_close(param[f"absmax{index}"], twin[f"absmax{index}"])
            ours_read, theirs_read = (codebook[s[f"state{index}"].int()] for s in (param, twin))
            apart = (param[f"state{index}"].int() - twin[f"state{index}"].int()).abs()
            # One code, or a step of the library's search table (see test_quantization.py).
            assert ((apart <= 1) | ((ours_read - theirs_read).abs() <= 2**-14)).all()


def test_twenty_steps_stay_near_32_bits_and_nearer_than_the_library():
    exact, _ = train(AdamW)
    ours, _ = train(AdamW8bit)
    theirs, _ = train(library)

    def apart(params):
        return max((a - b).abs().max().item() for a, b in zip(params, exact, strict=True))

    travelled = 20 * 1e-3  # no weight can move further than about lr a step
    assert 0 < apart(ours) < 0.25 * travelled
    assert apart(ours) < apart(theirs)


def test_small_tensors_are_exact():
    exact, _ = train(AdamW)
    ours, optimizer = train(AdamW8bit)
    for index in (2, 3):
        torch.testing.assert_close(ours[index], exact[index], rtol=0, atol=1e-7)
    state = list(optimizer.state.values())
    assert [s["state1"].dtype for s in state] == [
        torch.uint8,
        torch.uint8,
        torch.float32,
        torch.float32,
    ]


@pytest.mark.parametrize("elements", [1, 4095, 4096, 4097, 10_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes(elements, dtype):
    _, optimizer = train(AdamW8bit, steps=1, shapes=[(elements,)], dtype=dtype)
    expected = 8 * elements if elements < 4096 else 2 * (elements + 4 * num_blocks(elements))
    assert measure_optimizer_state(optimizer).bytes == expected + 4


def test_threshold_can_be_chosen_a_group():
    first, second = nn.Parameter(torch.ones(100)), nn.Parameter(torch.ones(5000))
    groups = [{"params": [first], "min_8bit_size": 0}, {"params": [second], "min_8bit_size": 10**6}]
    optimizer = AdamW8bit(groups)
    first.grad, second.grad = torch.ones(100), torch.ones(5000)
    optimizer.step()
    assert optimizer.state[first]["state1"].dtype == torch.uint8
    assert optimizer.state[second]["state1"].dtype == torch.float32


def test_a_weight_without_gradient_stays():
    """bitsandbytes' CPU search maps 0 to a small code, and such weights wander off."""
    param = nn.Parameter(torch.ones(5000))
    optimizer = AdamW8bit([param], weight_decay=0.0)
    for step in gradients([(5000,)], 10):
        param.grad = step[0]
        param.grad[::2] = 0
        optimizer.step()
    assert param[::2].eq(1).all()
    assert not param[1::2].eq(1).any()


def test_no_leap_when_a_second_moment_is_far_below_its_blocks_largest():
    """Rounded to 0, the second moment of the small gradient would turn its next step into a leap."""
    param = nn.Parameter(torch.zeros(4096))
    optimizer = AdamW8bit([param], lr=1e-3, weight_decay=0.0)
    for size in (1.0, 1e-3, 1e-3):
        param.grad = torch.full((4096,), 1e-4 * size)
        param.grad[::256] = 100.0
        optimizer.step()
        codes = optimizer.state[param]["state2"]
        assert codes.gt(0).all()
    assert param.abs().max() <= 3.1e-3


def test_second_moment_spends_all_codes_on_one_sign():
    _, optimizer = train(AdamW8bit)
    codes = next(iter(optimizer.state.values()))["state2"]
    unsigned = dynamic_codebook(signed=False)
    assert codes.max() == 255
    assert unsigned[codes.int()].min() >= 0
    assert len(codes.unique()) > 128  # a signed codebook would leave half of the codes unused


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_gradient_changes_nothing(bad):
    params, optimizer = train(AdamW8bit, steps=2)
    before = [param.clone() for param in params], copy.deepcopy(optimizer.state_dict())
    param = list(optimizer.state)[1]
    param.grad[17] = bad
    with pytest.raises(ValueError, match=r"shape \(4100,\) holds NaN or infinity"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(params, before[0], strict=True))
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            assert torch.equal(value, before[1]["state"][index][name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_saved_state_continues_identically(dtype):
    (params, optimizer) = train(AdamW8bit, steps=3, dtype=dtype)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    copies = [nn.Parameter(param.clone()) for param in params]
    resumed = AdamW8bit(copies)
    resumed.load_state_dict(torch.load(file))
    for state in resumed.state.values():
        if "absmax1" in state:
            assert state["state1"].dtype == torch.uint8
            assert state["absmax1"].dtype == torch.float32
    for own, other in zip(list(optimizer.state), copies, strict=True):
        own.grad = torch.full_like(own, 0.5)
        other.grad = own.grad.clone()
    optimizer.step()
    resumed.step()
    assert all(torch.equal(a, b) for a, b in zip(params, copies, strict=True))


def test_bf16_weights_step_as_32_bit_ones_then_rounded():
    param = nn.Parameter(torch.ones(4096, dtype=torch.bfloat16))
    param.grad = torch.ones_like(param)
    AdamW8bit([param], lr=0.1, weight_decay=0.0).step()
    assert param.eq(torch.tensor(0.9).bfloat16()).all()


def test_step_function_changes_its_pairs_in_place():
    param, grad = torch.ones(300), torch.full((300,), 2.0)
    zero = (dynamic_codebook() == 0).nonzero().item()
    first = torch.full((300,), zero).byte(), torch.zeros(2)
    second = torch.zeros(300).byte(), torch.zeros(2)
    adamw_8bit_step_(
        param, grad, first, second, 1, lr=0.1, betas=(0.9, 0.99), eps=0.0, weight_decay=0.5
    )
    # decay: 1 - 0.1 * 0.5; then one step of lr, since the corrected moments are g and g**2
    torch.testing.assert_close(param, torch.full((300,), 0.95 - 0.1))
    torch.testing.assert_close(first[1], torch.full((2,), 0.2))  # (1 - 0.9) * 2
    torch.testing.assert_close(second[1], torch.full((2,), 0.04))  # (1 - 0.99) * 4
    assert first[0].eq(255).all()
    assert second[0].eq(255).all()


def test_empty_non_contiguous_and_learning_rate():
    params = [nn.Parameter(torch.empty(0, 5)), nn.Parameter(torch.ones(80, 70).t())]
    optimizer = AdamW8bit(params, lr=0.0, min_8bit_size=0)
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.step()
    assert params[1].eq(1).all()
    assert optimizer.state[params[1]]["state1"].dtype == torch.uint8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": -1}, "lr"),
        ({"betas": (0.9, 1.0)}, "beta"),
        ({"eps": float("nan")}, "eps"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"min_8bit_size": -1}, "min_8bit_size must be a whole number of at least 0, got -1"),
        ({"min_8bit_size": 2.5}, "got 2.5"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        AdamW8bit([nn.Parameter(torch.ones(3))], **options)


def test_complex_and_integer_parameters_are_refused():
    param = nn.Parameter(torch.ones(3, dtype=torch.complex64))
    param.grad = torch.ones_like(param)
    with pytest.raises(TypeError, match="complex64"):
        AdamW8bit([param]).step()
