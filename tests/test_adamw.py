"""utils.optimizers.adamw: averages by hand, parity with PyTorch, and input that must be refused."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from utils.optimizers import (
    AdamL2,
    AdamW,
    adam_l2_step,
    adamw_step,
    adamw_step_,
    all_finite,
    bias_correction,
    ema,
    ema_sequence,
)

SHAPES = [(3, 5), (7,), (2, 3, 4), ()]
OURS_AND_TORCHS = [(AdamW, torch.optim.AdamW), (AdamL2, torch.optim.Adam)]
betas = st.floats(0, 0.9999)
reals = st.floats(-1e3, 1e3)


def one(value, dtype=torch.float64):
    return torch.nn.Parameter(torch.full((1,), value, dtype=dtype))


def normal_numbers(shape, dtype, generator):
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(shape, generator=generator, dtype=wide).to(dtype)


def make_params(dtype=torch.float32, shapes=SHAPES):
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(normal_numbers(shape, dtype, generator)) for shape in shapes]


def set_gradients(params, step):
    """Different for every step, parameter and element; scales from 1e-4 to 1e2."""
    generator = torch.Generator().manual_seed(1000 + step)
    for index, param in enumerate(params):
        noise = normal_numbers(param.shape, param.dtype, generator)
        param.grad = noise * 10.0 ** (2 * index - 4) * (1 + math.sin(step))


def run(optimizer, params, steps, start=0):
    for step in range(start, start + steps):
        set_gradients(params, step)
        optimizer.step()
    return [param.detach().clone() for param in params]


def step_with(optimizer, param, *gradients):
    for gradient in gradients:
        param.grad = None if gradient is None else torch.full_like(param, gradient)
        optimizer.step()
    return param.tolist()


def state_bytes(optimizer):
    tensors = [value for state in optimizer.state.values() for value in state.values()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


# Averages


def test_ema_by_hand():
    assert ema(2.0, 6.0, 0.75) == 3.0
    assert ema_sequence([8.0, 0.0, 16.0], 0.5) == [4.0, 2.0, 9.0]
    assert ema_sequence([], 0.5) == []
    rows = torch.tensor([[1.0, 2.0, 4.0], [3.0, 0.0, -4.0]])
    torch.testing.assert_close(ema_sequence(rows, 0.5)[-1], torch.tensor([1.75, 0.5, -1.0]))


@given(reals, reals, betas)
def test_ema_lies_between_the_two(previous, value, beta):
    average = ema(previous, value, beta)
    slack = 1e-9 * (abs(previous) + abs(value))
    assert min(previous, value) - slack <= average <= max(previous, value) + slack


@given(st.lists(reals, min_size=1, max_size=20), betas)
def test_ema_sequence_is_the_weighted_sum_of_its_formula(values, beta):
    t = len(values)
    expected = (1 - beta) * sum(beta ** (t - i) * value for i, value in enumerate(values, 1))
    assert ema_sequence(values, beta)[-1] == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(reals, st.integers(1, 50), betas)
def test_corrected_average_of_a_constant_is_the_constant(value, steps, beta):
    average = ema_sequence([value] * steps, beta)[-1]
    assert average / bias_correction(beta, steps) == pytest.approx(value, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("beta", [-0.1, 1.0, 1.5, math.nan, math.inf, "0.9", None, True])
def test_bad_beta_is_named(beta):
    for call in (lambda: ema(1.0, 2.0, beta), lambda: bias_correction(beta, 1)):
        with pytest.raises(ValueError, match=r"beta must be a finite number in \[0, 1\), got"):
            call()


@pytest.mark.parametrize("step", [0, -1, 0.5, math.nan])
def test_steps_count_from_one(step):
    with pytest.raises(ValueError, match="step must be a finite number >= 1, got"):
        bias_correction(0.9, step)


# Parity with PyTorch


@pytest.mark.parametrize(("ours", "torchs"), OURS_AND_TORCHS)
@pytest.mark.parametrize(
    "options",
    [
        {"weight_decay": 0.0},
        {"weight_decay": 0.3},
        {"weight_decay": 0.1, "amsgrad": True},
        {"lr": 0.05, "betas": (0.8, 0.95), "eps": 0.1, "weight_decay": 0.2},
        {"betas": (0.0, 0.0), "eps": 1e-3, "weight_decay": 0.0},
    ],
    ids=["plain", "decay", "amsgrad", "all", "no-memory"],
)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-12), (torch.complex64, 2e-6)]
)
def test_equals_torch_over_100_steps(ours, torchs, options, dtype, tolerance):
    mine, theirs = make_params(dtype), make_params(dtype)
    first, second = ours(mine, **options), torchs(theirs, foreach=False, **options)
    start = [param.detach().clone() for param in mine]
    results = run(first, mine, 100), run(second, theirs, 100)
    torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(results[0], start, strict=True))
    for my_param, their_param in zip(mine, theirs, strict=True):
        my_state, their_state = first.state[my_param], second.state[their_param]
        assert list(my_state) == list(their_state)
        torch.testing.assert_close(dict(my_state), their_state, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("ours", "torchs"), OURS_AND_TORCHS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-12)])
def test_two_parameter_groups_equal_torch(ours, torchs, dtype, tolerance):
    def groups(params):
        decayed = {"params": params[:2], "lr": 0.02, "weight_decay": 0.5, "betas": (0.8, 0.9)}
        return [decayed, {"params": iter(params[2:]), "weight_decay": 0.0, "amsgrad": True}]

    mine, theirs = make_params(dtype), make_params(dtype)
    results = (
        run(ours(groups(mine), lr=0.003), mine, 100),
        run(torchs(groups(theirs), lr=0.003, foreach=False), theirs, 100),
    )
    torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)


def test_l2_and_decoupled_decay_differ_only_with_decay():
    def difference(decay):
        mine, other = make_params(), make_params()
        first = run(AdamW(mine, lr=0.01, weight_decay=decay), mine, 20)
        second = run(AdamL2(other, lr=0.01, weight_decay=decay), other, 20)
        return max((a - b).abs().max().item() for a, b in zip(first, second, strict=True))

    assert difference(0.0) == 0.0
    assert difference(0.5) > 0.01


@pytest.mark.parametrize(("ours", "torchs"), OURS_AND_TORCHS)
def test_works_with_a_scheduler_and_a_closure(ours, torchs):
    results = []
    for optimizer_class in (ours, torchs):
        model = torch.nn.Linear(5, 3)
        with torch.no_grad():
            model.weight.copy_(torch.arange(15.0).view(3, 5) / 7)
            model.bias.zero_()
        optimizer = optimizer_class(model.parameters(), lr=0.1, weight_decay=0.1)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=10)

        def closure(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (model(torch.arange(10.0).view(2, 5) / 10) ** 2).sum()
            loss.backward()
            return loss

        losses = []
        for _ in range(10):
            losses.append(optimizer.step(closure).item())
            scheduler.step()
        results.append(torch.tensor(losses))
    assert results[0][-1] < results[0][0]
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}])
@pytest.mark.parametrize("source", [AdamW, torch.optim.AdamW])
def test_saved_state_continues_identically(source, options):
    params = make_params()
    optimizer = source(params, lr=0.02, weight_decay=0.1, **options)
    run(optimizer, params, 7)
    saved = copy.deepcopy(optimizer.state_dict())
    resumed = [torch.nn.Parameter(param.detach().clone()) for param in params]
    expected = run(optimizer, params, 5, start=7)

    continued = AdamW(resumed, lr=9.0)
    continued.load_state_dict(saved)
    torch.testing.assert_close(run(continued, resumed, 5, start=7), expected, rtol=0, atol=0)
    assert continued.state[resumed[0]]["step"].item() == 12


def test_a_copied_optimizer_trains_on_its_own():
    params = make_params()
    optimizer = AdamW(params, lr=0.02)
    run(optimizer, params, 3)
    twin = copy.deepcopy(optimizer)
    twins = twin.param_groups[0]["params"]
    assert twins[0] is not params[0]
    torch.testing.assert_close(run(twin, twins, 4), run(optimizer, params, 4), rtol=0, atol=0)


# One step as a function


def test_pure_step_changes_no_argument_and_equals_the_class():
    (param,) = make_params(torch.float64, shapes=[(3, 5)])
    set_gradients([param], 1)
    for optimizer_class, step_function in ((AdamW, adamw_step), (AdamL2, adam_l2_step)):
        weights = torch.nn.Parameter(param.detach().clone())
        weights.grad = param.grad
        optimizer = optimizer_class([weights], lr=0.1, weight_decay=0.3, amsgrad=True)
        values = (param, *(torch.zeros(3, 5, dtype=torch.float64) for _ in range(3)))
        for step in (1, 2, 3):
            before = [value.detach().clone() for value in values]
            result = step_function(
                *(values[0], param.grad, *values[1:3], step),
                lr=0.1,
                weight_decay=0.3,
                max_second=values[3],
            )
            torch.testing.assert_close([v.detach() for v in values], before, rtol=0, atol=0)
            optimizer.step()
            torch.testing.assert_close(result[0], weights.detach(), rtol=0, atol=0)
            values = result
        assert len(result) == 4
        assert not result[0].requires_grad


def test_without_amsgrad_the_step_returns_three():
    assert len(adamw_step(*(torch.ones(2, 3) for _ in range(4)), 1)) == 3


def test_hand_computed_second_step_with_unequal_gradients():
    param, grads = torch.tensor([1.0, -2.0, 0.5]).double(), [[1.0, -4.0, 0.0], [3.0, 2.0, -1.0]]
    first = second = torch.zeros(3).double()
    options = {"lr": 0.1, "betas": (0.5, 0.75), "eps": 0.25, "weight_decay": 0.5}
    for step, grad in enumerate(grads, 1):
        grad = torch.tensor(grad).double()
        param, first, second = adamw_step(param, grad, first, second, step, **options)
    # m2 = (1.75, 0, -0.5), v2 = (39/16, 4, 1/4); corrections 3/4 and 7/16.
    # After step 1: p1 = 0.95 p0 - 0.1 g / (|g| + 0.25) = (0.87, -1.9 + 0.1/1.0625, 0.475)
    after_one = [0.95 - 0.1 / 1.25, -1.9 + 0.4 / 4.25, 0.475]
    moves = [7 / 3 / (math.sqrt(39 / 7) + 0.25), 0.0, -2 / 3 / (math.sqrt(4 / 7) + 0.25)]
    expected = [0.95 * p - 0.1 * move for p, move in zip(after_one, moves, strict=True)]
    torch.testing.assert_close(param.tolist(), expected, rtol=1e-12, atol=0)
    assert first.tolist() == [1.75, 0.0, -0.5]
    assert second.tolist() == [39 / 16, 4.0, 1 / 4]


finite_vectors = st.lists(st.floats(-100, 100), min_size=1, max_size=7)


@settings(deadline=None)
@given(finite_vectors, st.floats(1e-3, 1e3), st.integers(-20, 20))
def test_step_without_eps_ignores_the_gradients_scale(grads, lr, power):
    grad = torch.tensor([g if abs(g) > 1e-3 else 1.0 for g in grads]).double()
    zeros = torch.zeros_like(grad)
    options = {"lr": lr, "eps": 0.0, "weight_decay": 0.0}
    moved = adamw_step(zeros, grad, zeros, zeros, 1, **options)[0]
    scaled = adamw_step(zeros, grad * 2.0**power, zeros, zeros, 1, **options)[0]
    torch.testing.assert_close(scaled, moved, rtol=1e-12, atol=0)
    torch.testing.assert_close(moved, -lr * grad.sign(), rtol=1e-9, atol=0)


@settings(deadline=None)
@given(finite_vectors, st.floats(0, 0.5), st.integers(1, 30))
def test_decay_shrinks_before_the_step_and_never_touches_the_moments(grads, decay, step):
    grad = torch.tensor(grads).double()
    param, first, second = grad.flip(0) + 1, grad / 3, grad**2 / 5
    plain = adamw_step(param, grad, first, second, step, lr=0.1, weight_decay=0.0)
    decayed = adamw_step(param, grad, first, second, step, lr=0.1, weight_decay=decay)
    torch.testing.assert_close(decayed[1:], plain[1:], rtol=0, atol=0)
    expected = plain[0] - 0.1 * decay * param
    torch.testing.assert_close(decayed[0], expected, rtol=1e-10, atol=1e-10)


# Facts about Adam


def test_eps_is_added_after_the_bias_correction():
    param = one(1.0)
    optimizer = AdamW([param], lr=0.1, eps=0.1, weight_decay=0.0)
    # m / c1 = g and sqrt(v / c2) = |g| at step 1; eps inside the correction would give 0.986
    assert step_with(optimizer, param, 0.5)[0] == pytest.approx(1 - 0.1 * 0.5 / (0.5 + 0.1))


@pytest.mark.parametrize("gradient", [1e3, 1e-3, 1e-8, 1e-10])
def test_first_step_is_lr_unless_the_gradient_is_near_eps(gradient):
    param = one(0.0)
    step_with(AdamW([param], lr=0.1, weight_decay=0.0), param, gradient)
    assert -param.item() == pytest.approx(0.1 * gradient / (gradient + 1e-8), rel=1e-9)


@pytest.mark.parametrize("lr", [0.1, 0.01, 0.0])
def test_decoupled_decay_is_multiplied_by_lr(lr):
    param = one(1.0)
    step_with(AdamW([param], lr=lr, weight_decay=0.5), param, 0.0, 0.0, 0.0)
    assert param.item() == pytest.approx((1 - lr * 0.5) ** 3, rel=1e-12)


def test_zero_gradient_moves_by_momentum_and_none_does_not():
    param = one(1.0)
    optimizer = AdamW([param], lr=0.1, weight_decay=0.0)
    step_with(optimizer, param, 1.0, 0.0)
    m_hat, v_hat = 0.09 / (1 - 0.9**2), 0.000999 / (1 - 0.999**2)
    expected = 1 - 0.1 - 0.1 * m_hat / math.sqrt(v_hat)
    assert param.item() == pytest.approx(expected, abs=1e-8)
    assert optimizer.state[param]["step"].item() == 2

    param = one(1.0)
    optimizer = AdamW([param], lr=0.1, weight_decay=0.5)
    before = step_with(optimizer, param, 1.0)
    assert step_with(optimizer, param, None) == before
    assert optimizer.state[param]["step"].item() == 1


def test_a_parameter_without_gradient_has_no_state():
    used, unused = make_params(shapes=[(3, 5), (4, 2)])
    before = unused.detach().clone()
    optimizer = AdamW([used, unused], weight_decay=0.5)
    set_gradients([used], 0)
    optimizer.step()
    assert list(optimizer.state) == [used]
    torch.testing.assert_close(unused.detach(), before, rtol=0, atol=0)


def test_stored_moments_stay_uncorrected():
    param = one(1.0)
    optimizer = AdamW([param], lr=0.0)
    step_with(optimizer, param, 2.0, 2.0, 2.0)
    state = optimizer.state[param]
    assert state["exp_avg"].item() == pytest.approx(2 * (1 - 0.9**3), rel=1e-12)
    assert state["exp_avg_sq"].item() == pytest.approx(4 * (1 - 0.999**3), rel=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_gradient_spoils_the_state_and_the_guard_prevents_it(bad):
    spoiled, guarded = one(1.0), one(1.0)
    optimizer = AdamW([spoiled], lr=0.1)
    step_with(optimizer, spoiled, bad, *[1.0] * 20)
    assert math.isnan(spoiled.item())
    assert math.isnan(optimizer.state[spoiled]["exp_avg"].item())

    optimizer = AdamW([guarded], lr=0.1)
    for gradient in (bad, *[1.0] * 20):
        guarded.grad = torch.full_like(guarded, gradient)
        if all_finite([guarded.grad]):
            optimizer.step()
    assert guarded.item() == pytest.approx(-0.98, abs=0.1)
    assert optimizer.state[guarded]["step"].item() == 20


def test_all_finite():
    large = torch.full((2, 3), 3e38)  # its sum overflows, each element does not
    assert all_finite([large, torch.zeros(0), torch.ones(())])
    assert all_finite([])
    assert not all_finite([torch.ones(3), torch.tensor([1.0, math.nan])])
    assert not all_finite([torch.tensor([math.inf, -math.inf])])


# Shapes, dtypes and bytes


def test_bf16_weights_lose_small_updates_as_in_torch():
    for optimizer_class in (AdamW, torch.optim.AdamW):
        for lr, expected in ((1e-3, 1.0), (2e-3, 0.9609375)):  # 0.99 and 0.98 in float32
            param = one(1.0, torch.bfloat16)
            step_with(optimizer_class([param], lr=lr, weight_decay=0.0), param, *[1.0] * 10)
            assert param.item() == expected
        param = one(1.0, torch.bfloat16)
        step_with(optimizer_class([param], lr=1e-3, weight_decay=0.01), param, *[0.0] * 100)
        assert param.item() == 1.0


@pytest.mark.parametrize(
    ("dtype", "amsgrad", "expected"),
    [
        (torch.float32, False, 10 * 8 + 4),
        (torch.float32, True, 10 * 12 + 4),
        (torch.bfloat16, False, 10 * 4 + 4),
        (torch.complex64, False, 10 * 16 + 4),
    ],
)
def test_state_bytes_of_ten_elements(dtype, amsgrad, expected):
    param = torch.nn.Parameter(torch.ones(2, 5, dtype=dtype))
    optimizer = AdamW([param], amsgrad=amsgrad)
    step_with(optimizer, param, 1.0)
    assert state_bytes(optimizer) == expected


def test_step_counter_is_float64_where_that_is_the_default():
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        layer = torch.nn.Linear(3, 2)
        optimizer = AdamW(layer.parameters())
        layer(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    finally:
        torch.set_default_dtype(default)
    assert optimizer.state[layer.weight]["step"].dtype == torch.float64
    assert state_bytes(optimizer) == 16 * 8 + 2 * 8


def test_empty_and_non_contiguous_parameters():
    empty = torch.nn.Parameter(torch.ones(0, 3))
    turned = torch.nn.Parameter(torch.arange(6.0).view(2, 3).t())
    plain = torch.nn.Parameter(turned.detach().contiguous())
    for param in (empty, turned, plain):
        param.grad = torch.ones_like(param) + param.detach()
    AdamW([empty, turned, plain], lr=0.1).step()
    assert empty.shape == (0, 3)
    torch.testing.assert_close(turned, plain, rtol=0, atol=0)


# Input that must be refused


@pytest.mark.parametrize("optimizer_class", [AdamW, AdamL2])
@pytest.mark.parametrize("bad", [-1e-3, math.nan, math.inf, "0.1", None, torch.tensor(0.1)])
@pytest.mark.parametrize("name", ["lr", "eps", "weight_decay"])
def test_bad_hyperparameters_are_named(optimizer_class, name, bad):
    with pytest.raises(ValueError, match=f"{name} must be a finite number >= 0, got"):
        optimizer_class([one(1.0)], **{name: bad})
    with pytest.raises(ValueError, match=f"{name} must be a finite number >= 0, got"):
        optimizer_class([{"params": [one(1.0)], name: bad}])


@pytest.mark.parametrize(
    "betas", [(1.0, 0.9), (0.9, 1.0), (-0.1, 0.9), (0.9, math.nan), (0.9,), 0.9]
)
def test_bad_betas_are_named(betas):
    with pytest.raises(ValueError, match="betas"):
        AdamW([one(1.0)], betas=betas)


def test_bad_amsgrad_and_empty_parameter_lists():
    with pytest.raises(ValueError, match="amsgrad must be True or False, got 'yes'"):
        AdamW([one(1.0)], amsgrad="yes")
    with pytest.raises(ValueError, match="empty parameter list"):
        AdamW([])
    AdamW([{"params": []}, {"params": [one(1.0)]}]).step()


def test_lr_spoiled_after_construction_is_caught_before_the_weights():
    param = one(1.0)
    optimizer = AdamW([param])
    optimizer.param_groups[0]["lr"] = math.nan
    with pytest.raises(ValueError, match="lr must be a finite number, got nan"):
        step_with(optimizer, param, 1.0)
    assert param.item() == 1.0


@pytest.mark.filterwarnings("error")
def test_a_parameter_given_twice_is_refused():
    param, other = one(1.0), one(2.0)
    with pytest.raises(ValueError, match="listed twice in a group of 3"):
        AdamW([param, other, param])
    with pytest.raises(ValueError, match="listed twice in a group of 2"):
        AdamW([("a", param), ("b", param)])
    with pytest.raises(ValueError, match="more than one parameter group"):
        AdamW([{"params": [param]}, {"params": [other, param]}])
    optimizer = AdamW([param])
    with pytest.raises(ValueError, match="listed twice"):
        optimizer.add_param_group({"params": [other, other]})
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": other})
    assert optimizer.param_groups[1]["params"][0] is other


def test_sparse_and_integer_input_is_refused_before_anything_moves():
    plain = one(1.0)
    table = torch.nn.Embedding(10, 3, sparse=True)
    table(torch.tensor([1, 4])).sum().backward()
    optimizer = AdamW([plain, table.weight])
    with pytest.raises(TypeError, match=r"AdamW needs dense gradients, got layout torch.sparse"):
        step_with(optimizer, plain, 1.0)
    assert plain.item() == 1.0
    assert not optimizer.state

    whole = torch.nn.Parameter(torch.ones(3, dtype=torch.int64), requires_grad=False)
    with pytest.raises(TypeError, match=r"floating-point parameters, got torch.int64"):
        step_with(AdamL2([whole]), whole, 1)


def test_unequal_shapes_are_refused():
    param, moment = torch.ones(2, 3), torch.zeros(2, 3)
    for tensors in (
        (param, torch.ones(3), moment, moment),
        (param, param, torch.zeros(1, 3), moment),
        (param, param, moment, torch.zeros(3, 2)),
    ):
        with pytest.raises(ValueError, match="must have one shape, got"):
            adamw_step(*tensors, 1)
    with pytest.raises(ValueError, match="must have one shape, got"):
        adamw_step(param, param, moment, moment, 1, max_second=torch.zeros(3))
    options = {"lr": 1.0, "betas": (0.9, 0.99), "eps": 0.0, "weight_decay": 0.5}
    with pytest.raises(ValueError, match="step must be a finite number >= 1, got 0"):
        adamw_step_(param, param, moment, moment, 0, **options)
    assert param.min() == param.max() == 1.0
