"""Adafactor from its paper: equal to both libraries, and right where row and column get confused."""

import itertools

import pytest
import torch
from torch import nn
from transformers.optimization import Adafactor as TransformersAdafactor

from utils.optimizers import (
    Adafactor,
    adafactor_step,
    factored_second_moment,
    new_statistics,
    relative_step_size,
    row_col_update,
    second_moment_decay,
    update_clipping,
)

SHAPES = [(), (5,), (3, 7), (4, 2, 3), (5, 3, 3, 2), (2, 2, 3, 1, 4)]
STEPS = 60


def run(make, dtype=torch.float64, shapes=SHAPES, scale=1.0):
    """Return the parameters after STEPS steps of gradients that differ in size from place to place."""
    torch.manual_seed(3)
    params = [nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes]
    optimizer = make(params)
    noise = torch.Generator().manual_seed(7)
    for step in range(STEPS):
        for param in params:
            size = torch.linspace(0.01, 3.0, max(param.numel(), 1), dtype=dtype)
            drawn = torch.randn(param.shape, generator=noise, dtype=torch.float64).to(dtype)
            param.grad = drawn * size.reshape(param.shape) * (1 + step % 3) * scale
        optimizer.step()
    return [param.detach() for param in params], optimizer


def assert_equal(ours, theirs, tolerance):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr": 0.3, "weight_decay": 0.1},
        {"lr": 0.02, "eps": (None, 0.5), "clip_threshold": 1.5, "decay_rate": -0.5},
    ],
)
def test_equal_to_torch(options):
    names = {"clip_threshold": "d", "decay_rate": "beta2_decay"}
    theirs = {names.get(name, name): value for name, value in options.items()}
    ours, _ = run(lambda p: Adafactor(p, convention="torch", **options))
    expected, _ = run(lambda p: torch.optim.Adafactor(p, foreach=False, **theirs))
    assert_equal(ours, expected, 1e-9)


@pytest.mark.parametrize("eps1", [1e-3, 1e-6])
def test_equal_where_epsilon_decides(eps1):
    """Gradients around eps1, so that their squares lie around eps1 ** 2."""
    ours, _ = run(lambda p: Adafactor(p, convention="torch", eps=(eps1, 1e-3)), scale=eps1)
    theirs, _ = run(lambda p: torch.optim.Adafactor(p, eps=(eps1, 1e-3), foreach=False), scale=eps1)
    assert_equal(ours, theirs, 1e-9)
    options = {"relative_step": False, "lr": 0.05, "eps": (eps1**2, 1e-3)}
    ours, _ = run(lambda p: Adafactor(p, convention="transformers", **options), scale=eps1)
    theirs, _ = run(lambda p: TransformersAdafactor(p, **options), scale=eps1)
    assert_equal(ours, theirs, 1e-9)


COMBINATIONS = [
    {"scale_parameter": scale, "beta1": beta1, **step}
    for scale, beta1, step in itertools.product(
        (True, False),
        (None, 0.7),
        (
            {"relative_step": True},
            {"relative_step": True, "warmup_init": True},
            {"relative_step": False, "lr": 0.05, "weight_decay": 0.2},
        ),
    )
]


@pytest.mark.parametrize("options", COMBINATIONS, ids=str)
def test_equal_to_transformers(options):
    ours, _ = run(lambda p: Adafactor(p, convention="transformers", **options))
    theirs, _ = run(lambda p: TransformersAdafactor(p, **options))
    assert_equal(ours, theirs, 1e-9)


def test_equal_in_float32_too():
    ours, _ = run(lambda p: Adafactor(p, 0.1, convention="torch"), torch.float32)
    theirs, _ = run(lambda p: torch.optim.Adafactor(p, 0.1, foreach=False), torch.float32)
    assert_equal(ours, theirs, 1e-5)


def test_the_conventions_differ():
    ours, _ = run(lambda p: Adafactor(p, 0.1, convention="torch"))
    fixed = {"relative_step": False, "scale_parameter": False}
    theirs, _ = run(lambda p: Adafactor(p, 0.1, convention="transformers", **fixed))
    assert not any(torch.allclose(a, b) for a, b in zip(ours, theirs, strict=True))


def test_state_is_one_number_a_row_and_one_a_column():
    _, optimizer = run(lambda p: Adafactor(p, convention="torch"), torch.float32)
    shapes = [
        [tuple(value.shape) for name, value in state.items() if name != "step"]
        for state in optimizer.state.values()
    ]
    assert shapes[:3] == [[()], [(5,)], [(3,), (7,)]]
    assert shapes[3:] == [[(4, 2), (4, 3)], [(5, 3, 3), (5, 3, 2)], [(2, 2, 3, 1), (2, 2, 3, 4)]]


def test_reconstruction_is_exact_for_rank_one_and_keeps_row_and_column_sums_otherwise():
    rank_one = torch.tensor([1.0, 2.0, 5.0])[:, None] * torch.tensor([3.0, 1.0])
    other = torch.tensor([[1.0, 4.0], [2.0, 0.5], [0.0, 3.0]])
    for reduction, reduce in (("sum", torch.sum), ("mean", torch.mean)):
        for matrix in (rank_one, other):
            estimate = factored_second_moment(reduce(matrix, -1), reduce(matrix, -2), reduction)
            torch.testing.assert_close(estimate.sum(-1), matrix.sum(-1))
            torch.testing.assert_close(estimate.sum(-2), matrix.sum(-2))
        exact = factored_second_moment(reduce(rank_one, -1), reduce(rank_one, -2), reduction)
        torch.testing.assert_close(exact, rank_one)
    assert not torch.allclose(
        factored_second_moment(other.sum(-1), other.sum(-2)), other
    )  # a matrix of rank two is estimated, not stored


def test_one_row_and_column_update_by_hand():
    squared = torch.tensor([[1.0, 4.0, 9.0], [0.0, 2.0, 4.0]])
    row, col = row_col_update(torch.tensor([10.0, 20.0]), torch.zeros(3), squared, 0.75, "mean")
    torch.testing.assert_close(row, torch.tensor([7.5 + 14 / 12, 15.0 + 0.5]))
    torch.testing.assert_close(col, torch.tensor([0.125, 0.75, 1.625]))


def test_decay_clipping_and_relative_step():
    assert second_moment_decay(1) == 0
    assert second_moment_decay(2) == pytest.approx(1 - 2**-0.8)
    update = torch.tensor([3.0, -4.0])
    torch.testing.assert_close(update_clipping(update, 1.0).square().mean(), torch.tensor(1.0))
    torch.testing.assert_close(update_clipping(update, 9.0), update)
    assert relative_step_size(9_999) == relative_step_size(10_000) == pytest.approx(1e-2)
    assert relative_step_size(40_000) == pytest.approx(0.005)
    assert relative_step_size(100, warmup_init=True) == pytest.approx(1e-4)


@pytest.mark.parametrize("convention", ["torch", "transformers"])
def test_a_row_of_zero_gradients_stays_and_nothing_becomes_nan(convention):
    weight = nn.Parameter(torch.ones(3, 4))
    optimizer = Adafactor([weight], convention=convention)
    for _ in range(3):
        weight.grad = torch.ones(3, 4)
        weight.grad[1] = 0
        optimizer.step()
    assert torch.equal(weight[1], torch.ones(4))
    assert (weight[0] < 1).all()
    weight.grad = torch.zeros(3, 4)
    optimizer.step()
    assert torch.isfinite(weight).all()


def test_weight_decay_follows_each_library():
    options = {"lr": 0.1, "weight_decay": 0.5, "eps": (None, 1e-3)}

    def after(**more):
        weight = nn.Parameter(torch.full((1,), 4.0))
        optimizer = Adafactor([weight], **options, **more)
        weight.grad = torch.ones(1)
        optimizer.step()
        return weight.item()

    fixed = {"convention": "transformers", "relative_step": False}
    assert after(**fixed, scale_parameter=False) == pytest.approx(3.7)
    assert after(**fixed, scale_parameter=True) == pytest.approx(2.8)
    assert after(convention="torch") == pytest.approx(3.4)


def test_a_step_leaves_its_arguments_alone():
    param, grad = torch.ones(2, 3), torch.full((2, 3), 0.5)
    statistics = new_statistics(param)
    new_param, new = adafactor_step(param, grad, statistics, 1, convention="torch", lr=0.1)
    assert torch.equal(param, torch.ones(2, 3))
    assert not statistics[0].any()
    assert not torch.equal(new_param, param)
    assert [tuple(s.shape) for s in new] == [(2,), (3,)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"convention": "paper"}, "convention must be one of"),
        ({"convention": "transformers", "lr": 0.1}, "would be ignored with relative_step=True"),
        ({"convention": "transformers", "relative_step": False}, "lr must be a finite number"),
        ({"convention": "transformers", "relative_step": False, "lr": 1, "warmup_init": True}, "w"),
        ({"convention": "torch", "beta1": 0.9}, "does not exist in the 'torch' convention"),
        ({"convention": "torch", "clip_threshold": 0}, "above 0"),
        ({"convention": "torch", "eps": 1e-3}, "eps must be two numbers"),
        ({"convention": "torch", "decay_rate": 0.8}, "decay_rate"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        Adafactor([nn.Parameter(torch.ones(2))], **options)


def test_adams_betas_are_refused():
    with pytest.raises(TypeError, match="betas"):
        Adafactor([nn.Parameter(torch.ones(2))], convention="torch", betas=(0.9, 0.999))
