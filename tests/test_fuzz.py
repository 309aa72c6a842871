"""Any input to the public functions: the right answer, or an error that names what was wrong."""

import math
import re
import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from utils import printing, training
from utils.memory import (
    checkpointed_activations,
    compute_optimizer_size,
    estimate_adamw_bytes,
    estimate_optimizer_state,
    estimate_zero_state,
    format_bytes,
    measure_optimizer_state,
    rows_of_rank,
    zero_owners,
)
from utils.memory_command import parse_size
from utils.optimizers import (
    Adafactor,
    AdamW,
    AdamW8bit,
    adafactor_step,
    adamw_step,
    factored_second_moment,
    row_col_update,
)
from utils.optimizers.quantization import (
    blockwise_absmax,
    dequantize_blockwise,
    dynamic_codebook,
    quantize_blockwise,
)

thorough = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
SHAPES = st.lists(st.integers(0, 4), max_size=5).map(tuple)
DTYPES = st.sampled_from(
    [
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.uint8,
        torch.bool,
        torch.complex64,
    ]
)
# Numbers as people pass them, and as they do not mean to.
ODD = st.sampled_from(
    [math.nan, math.inf, -math.inf, -1.0, 1.0, 2.0, 0.0, None, "0.9", True, 1e300]
)
NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32)


@st.composite
def tensors(draw, shape=SHAPES, dtype=DTYPES, elements=NUMBERS):
    """Draw a tensor; its values are cycled from a few numbers, NaN and infinity among them."""
    shape, dtype = draw(shape), draw(dtype)
    few = draw(st.lists(elements, min_size=1, max_size=6))
    count = math.prod(shape)
    values = torch.tensor((few * (count // len(few) + 1))[:count], dtype=torch.float64)
    if not (dtype.is_floating_point or dtype.is_complex):
        values = values.nan_to_num(0, 1, 0).clamp(0, 1)
    return values.reshape(shape).to(dtype)


def refused(error: Exception, *names: str) -> None:
    """Assert that the error is one of input, in words, and names one of `names`."""
    assert isinstance(error, (ValueError, TypeError)), repr(error)
    assert any(re.search(name, str(error), re.IGNORECASE) for name in names), str(error)


def finite(*values: torch.Tensor) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in values)


@thorough
@given(tensors(), st.one_of(st.integers(-2, 300), ODD))
def test_blockwise_quantization(tensor, block_size):
    book = dynamic_codebook(True)
    try:
        codes, absmax = quantize_blockwise(tensor, book, block_size)
    except (ValueError, TypeError) as error:
        refused(error, "tensor", "block_size", "NaN", "codebook")
        usable = isinstance(block_size, int) and not isinstance(block_size, bool) and block_size > 0
        assert not (usable and tensor.is_floating_point() and finite(tensor.float()))
        return
    assert codes.shape == tensor.shape
    assert absmax.equal(blockwise_absmax(tensor, block_size))
    back = dequantize_blockwise(codes, absmax, book, block_size).flatten()
    wanted, scales = tensor.float().flatten(), absmax.repeat_interleave(block_size)
    # The widest gap of the signed codes is that around -0.993: half of it, and rounding.
    bound = scales[: wanted.numel()] * 0.0081 + 1e-37
    assert bool(((back - wanted).abs() <= bound).all())


SCALARS = st.one_of(st.floats(0, 1), ODD)


@thorough
@given(
    tensors(dtype=st.sampled_from([torch.float64, torch.complex64, torch.int64])),
    st.data(),
    st.one_of(st.integers(-1, 10), ODD),
    SCALARS,
    st.tuples(SCALARS, SCALARS),
    SCALARS,
    SCALARS,
)
def test_adamw_step(param, data, step, lr, betas, eps, weight_decay):
    shape = data.draw(st.one_of(st.just(tuple(param.shape)), SHAPES))
    grad = data.draw(tensors(shape=st.just(shape), dtype=st.just(param.dtype)))
    zero = torch.zeros_like(param)
    options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
    try:
        new, first, second = adamw_step(param, grad, zero, zero, step, **options)
    except (ValueError, TypeError) as error:
        refused(error, "shape", "step", "lr", "beta", "eps", "weight_decay", "floating|dtype|int")
        return
    assert lr >= 0 and eps >= 0 and weight_decay >= 0  # noqa: PT018
    assert all(0 <= beta < 1 for beta in betas)
    assert new.shape == param.shape == grad.shape
    if not finite(param, grad) or param.is_complex() or max(lr, eps, weight_decay) > 1:
        return
    beta1, beta2 = betas
    mean = (1 - beta1) * grad / (1 - beta1**step)
    square = ((1 - beta2) * grad**2 / (1 - beta2**step)).sqrt()
    wanted = param * (1 - lr * weight_decay) - lr * mean / (square + eps)
    assert torch.allclose(first, (1 - beta1) * grad, rtol=1e-9, atol=1e-300)
    assert torch.allclose(second, (1 - beta2) * grad**2, rtol=1e-9, atol=1e-300)
    # A gradient of 0 with eps of 0 is 0 / 0: NaN is the formula's own answer.
    assert torch.allclose(new, wanted, rtol=1e-6, atol=1e-12, equal_nan=True)


@thorough
@given(
    tensors(dtype=st.sampled_from([torch.float32, torch.complex64, torch.int64])),
    st.data(),
    st.one_of(st.integers(-1, 10), ODD),
    st.one_of(st.floats(0.0009765625, 1), ODD),
    st.sampled_from(["torch", "transformers", "tensorflow", None]),
)
def test_adafactor_step(param, data, step, lr, convention):
    grad = data.draw(tensors(shape=st.just(tuple(param.shape)), dtype=st.just(param.dtype)))
    if param.ndim >= 2:
        statistics = (param.new_zeros(param.shape[:-1]),)
        statistics += (param.new_zeros(param.shape[:-2] + param.shape[-1:]),)
    else:
        statistics = (torch.zeros_like(param),)
    options = {"relative_step": False} if convention == "transformers" else {}
    try:
        new, kept = adafactor_step(
            param, grad, statistics, step, convention=convention, lr=lr, **options
        )
    except (ValueError, TypeError) as error:
        refused(error, "step", "lr", "convention", "real", "floating|dtype|int")
        return
    assert new.shape == param.shape
    assert [k.shape for k in kept] == [s.shape for s in statistics]
    if finite(param, grad) and float(grad.abs().max() if grad.numel() else 0) < 1e15:
        assert finite(new, *kept)
        if not grad.any():
            assert new.equal(param)


@thorough
@given(tensors(elements=st.floats(0, 1e10)), st.one_of(st.floats(0, 0.99), ODD))
def test_factors(squared, beta2):
    if squared.ndim < 2:
        row = col = squared
    else:
        row = squared.new_zeros(squared.shape[:-1])
        col = squared.new_zeros(squared.shape[:-2] + squared.shape[-1:])
    try:
        row, col = row_col_update(row, col, squared, beta2, "mean")
        matrix = factored_second_moment(row, col, "mean")
    except (ValueError, TypeError) as error:
        refused(error, "fit", "beta2", "floating|dtype|int|real")
        return
    assert matrix.shape == squared.shape
    if finite(matrix) and matrix.numel() and squared.dtype in (torch.float32, torch.float64):
        wanted = (1 - beta2) * squared.double()
        for dim in (-1, -2):
            got = matrix.double().mean(dim)
            assert torch.allclose(got, wanted.mean(dim), rtol=1e-4, atol=1e-30)


OPTIMIZERS = {
    "AdamW": torch.optim.AdamW,
    "own AdamW": AdamW,
    "SGD": lambda p: torch.optim.SGD(p, momentum=0.9),
    "Adafactor": torch.optim.Adafactor,
    "own Adafactor": lambda p: Adafactor(p, convention="torch"),
    "own AdamW8bit": AdamW8bit,
}


@thorough
@given(
    st.lists(tensors(elements=st.floats(-10, 10)), min_size=1, max_size=4),
    st.sampled_from(sorted(OPTIMIZERS)),
)
def test_prediction_is_measurement_or_both_refuse(parameters, name):
    floating = [p for p in parameters if p.is_floating_point() or p.is_complex()]
    if not floating:
        return
    parameters = [torch.nn.Parameter(p) for p in floating]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            predicted = estimate_optimizer_state(OPTIMIZERS[name](parameters))
        except (ValueError, TypeError, RuntimeError, ZeroDivisionError):
            predicted = None
        optimizer = OPTIMIZERS[name](parameters)
        for p in parameters:
            p.grad = torch.ones_like(p)
        try:
            optimizer.step()
        except (ValueError, TypeError, RuntimeError, ZeroDivisionError):
            return  # the optimizer does not take such parameters at all
    if predicted is not None:
        assert predicted == measure_optimizer_state(optimizer)


VALUES = st.recursive(
    st.one_of(tensors(), st.integers(-(2**40), 2**40), st.floats(), st.none(), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@thorough
@given(
    st.one_of(
        st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3), max_size=3),
        VALUES,
        st.text(),
        st.just(object()),
    )
)
def test_counting_a_state(state):
    def leaves(value):
        if isinstance(value, dict):
            return [leaf for item in value.values() for leaf in leaves(item)]
        if isinstance(value, list):
            return [leaf for item in value for leaf in leaves(item)]
        return [] if value is None else [torch.as_tensor(value)]

    try:
        mebibytes, elements = compute_optimizer_size(state)
    except TypeError as error:
        refused(error, r"optimizer\.state\.values\(\)", "can be counted")
        return
    counted = [leaf for item in state for leaf in leaves(item)]
    assert mebibytes * 2**20 == sum(t.nbytes for t in counted)
    assert elements == sum(t.numel() for t in counted)


WHOLE = st.one_of(st.integers(-3, 10**6), ODD)


@thorough
@given(st.lists(st.integers(0, 10**9), max_size=8), WHOLE)
def test_owners(sizes, world_size):
    if isinstance(world_size, int) and world_size > 1000:
        world_size %= 1000
    try:
        owners = zero_owners(sizes, world_size)
    except ValueError as error:
        refused(error, "world_size")
        assert not (type(world_size) is int and world_size > 0)
        return
    assert len(owners) == len(sizes)
    held = [sum(s for s, o in zip(sizes, owners, strict=True) if o == r) for r in range(world_size)]
    assert sum(held) == sum(sizes)
    # Greedy, largest first: nobody is ahead of the least by more than one tensor.
    assert max(held) - min(held) <= max(sizes, default=0)


@thorough
@given(st.one_of(st.integers(-5, 10**6), ODD), WHOLE, WHOLE)
def test_rows(rows, world_size, rank):
    try:
        found = rows_of_rank(rows, world_size, rank)
    except ValueError as error:
        refused(error, "rows", "world_size", "rank")
        return
    assert type(found) is int
    assert 0 <= found <= rows
    if world_size < 200:
        assert sum(rows_of_rank(rows, world_size, r) for r in range(world_size)) == rows


@thorough
@given(
    st.one_of(
        st.text(max_size=12), st.from_regex(r"\d{1,4}(\.\d)? ?(GiB|GB|TiB|MB)", fullmatch=True)
    )
)
def test_sizes_as_text(text):
    try:
        num_bytes = parse_size(text)
    except ValueError as error:
        refused(error, "device memory")
        return
    assert num_bytes > 0
    number, unit = re.fullmatch(r"\s*([\d.]+)\s*(\w+?)\s*", text).groups()
    scale = {"K": 1, "M": 2, "G": 3, "T": 4}[unit[0].upper()]
    base = 1024 if "i" in unit.lower() else 1000
    assert num_bytes == round(float(number) * base**scale)


@thorough
@given(st.integers(0, 2**60), st.booleans())
def test_bytes_as_text(num_bytes, decimal):
    number, unit = format_bytes(num_bytes, decimal).split()
    base = 1000 if decimal else 1024
    power = "kKMGT".replace("k", "").find(unit[0].upper()) + 1 if unit[0] != "b" else 0
    assert math.isclose(float(number.replace(",", "")) * base**power, num_bytes, rel_tol=0.005)


COUNTS = st.one_of(st.integers(-2, 1000), ODD)


@thorough
@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_counts(a, b, c, d):
    for function in (
        checkpointed_activations,
        lambda a, b, c, d: training.update_steps(a, b, c, d),
        lambda a, b, c, d: estimate_adamw_bytes(a),
    ):
        try:
            found = function(a, b, c, d)
        except ValueError as error:
            refused(error, "whole number of at least")
        else:
            assert type(found) is int
            assert found >= 0


@thorough
@given(st.one_of(NUMBERS, ODD), st.integers(0, 6))
def test_stable_numbers(value, digits):
    try:
        text = printing.stable(value, digits)
    except TypeError as error:
        refused(error, "value|number|real")
        return
    assert math.isclose(float(text), value, abs_tol=0.51 * 10**-digits) or text == str(value)


@thorough
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 9))
def test_shares_of_zero_add_up(sizes, world_size):
    parameters = [torch.empty(n, device="meta", requires_grad=True) for n in sizes]
    shares = estimate_zero_state(parameters, torch.optim.AdamW, world_size)
    whole = estimate_optimizer_state(torch.optim.AdamW(parameters))
    assert sum(share.bytes for share in shares) == whole.bytes


def test_a_refusal_that_names_nothing_would_be_seen():
    with pytest.raises(AssertionError):
        refused(ValueError("bad input"), "block_size")
    with pytest.raises(AssertionError):
        refused(RuntimeError("block_size"), "block_size")
