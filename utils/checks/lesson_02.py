"""Checks of lesson 02: what AdamW's state takes, predicted and counted, and the whole bill."""

import copy
from collections.abc import Callable

import torch
from torch import nn

from utils import memory
from utils.checks.core import (
    Case,
    Misconception,
    Wrong,
    check_function,
    exercise,
    require_attempt,
)
from utils.checks.on_models import (
    TIED,
    check_on_models,
    check_part,
    num_bytes,
    numbers,
    tied_twice,
    trainable,
)
from utils.memory import MIB


@exercise("2.1")
def estimate_mib(answer) -> str:
    """Check `estimate_mib(num_parameters)`: MiB of AdamW's two FP32 moments."""
    cases = [
        Case(f"num_parameters={number:,}", (number,))
        for number in (131_072, 1_000_003, 7, 124_439_808)
    ]
    misconceptions = [
        Misconception(lambda n: n * 8, "that is in bytes; the question asks for MiB."),
        Misconception(
            lambda n: n * 8 / 10**6, "you divided by 10**6, which gives MB; a MiB is 1024**2 bytes."
        ),
        Misconception(lambda n: n * 8 / 1024, "you divided by 1024 once: that is KiB."),
        Misconception(lambda n: n * 8 / 1024**3, "you divided by 1024 three times: that is GiB."),
        Misconception(
            lambda n: n * 4 / MIB, "that is one moment; AdamW keeps two for each parameter."
        ),
        Misconception(
            lambda n: n * 16 / MIB,
            "you counted weights and gradients too; only the optimizer's state is asked for.",
        ),
        Misconception(lambda n: n * 2 / MIB, "you counted numbers; each takes 4 bytes in FP32."),
        Misconception(lambda n: n * 8 // MIB, "you rounded; return the exact quotient."),
        Misconception(lambda n: round(n * 8 / MIB), "you rounded; return the exact quotient."),
        Misconception(lambda n: round(n * 8 / MIB, 2), "you rounded; return the exact quotient."),
    ]
    return check_function(answer, lambda n: n * 8 / MIB, cases, misconceptions)


# The network of exercise 2.2: a Linear(768, 512) with a bias and a Linear(512, 2) without one.
_WEIGHTS, _TENSORS = 768 * 512 + 512 + 512 * 2, 3
_ELEMENTS = 2 * _WEIGHTS + _TENSORS


@exercise("2.2")
def predicted(answer) -> str:
    """Check the prediction `(elements, mebibytes)` for a network of three tensors."""
    require_attempt(answer)
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong("A pair is expected: (elements, mebibytes).")
    elements, mebibytes = answer
    size = _ELEMENTS * 4 / MIB
    mistakes = [
        Misconception(
            2 * _WEIGHTS,
            "you forgot the step counters: one number for each parameter tensor.",
        ),
        Misconception(2 * _WEIGHTS + 2, "you took one step counter a layer; it is one a tensor."),
        Misconception(2 * _WEIGHTS + 1, "every parameter tensor has a step counter of its own."),
        Misconception(
            2 * _WEIGHTS + 4, "the second layer has no bias: how many tensors are there?"
        ),
        Misconception(_WEIGHTS, "you counted the parameters; AdamW keeps two moments for each."),
        Misconception(_WEIGHTS + _TENSORS, "you counted one moment; AdamW keeps two."),
        Misconception(3 * _WEIGHTS + _TENSORS, "the weights themselves are no optimizer state."),
        Misconception(4 * _ELEMENTS, "these are bytes; elements are numbers, 4 bytes each."),
        Misconception(
            2 * (_WEIGHTS + 2) + 4, "the second layer has no bias: leave its two numbers out."
        ),
    ]
    check_part("Elements", elements, _ELEMENTS, mistakes, 1e-9)
    mistakes = [
        Misconception(4 * _ELEMENTS, "that is in bytes; the question asks for MiB."),
        Misconception(4 * _ELEMENTS / 10**6, "that is in MB (10**6 bytes); a MiB is 1024**2."),
        Misconception(4 * _ELEMENTS / 1024, "that is in KiB: divide by 1024 once more."),
        Misconception(8 * _ELEMENTS / MIB, "each element takes 4 bytes; both moments are in."),
        Misconception(_ELEMENTS / MIB, "each element takes 4 bytes, not 1."),
        Misconception(size / 2, "that is one moment; the state holds two."),
    ]
    # Two decimals are asked for, so that half a hundredth is close enough.
    check_part("MiB", mebibytes, size, mistakes, 0.005 / size)
    return f"{_ELEMENTS:,} elements and {size:.2f} MiB."


def stepped_state(parameters, **options) -> list[dict]:
    """Return AdamW's state after two steps with gradients of ones, as a list of dictionaries."""
    parameters = list(parameters)
    optimizer = torch.optim.AdamW(parameters, **options)
    for _ in range(2):
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    return list(optimizer.state.values())


def _sizes(optimizer_state):
    tensors = [torch.as_tensor(v) for state in optimizer_state for v in state.values()]
    return [(tensor.numel(), tensor.element_size()) for tensor in tensors]


def _size_of(keep: Callable) -> Callable:
    """Return a counting function that keeps the (name, value) pairs for which `keep` is true."""
    return lambda states: memory.compute_optimizer_size(
        [{name: value for name, value in state.items() if keep(name, value)} for state in states]
    )


@exercise("2.3")
def compute_optimizer_size(answer) -> str:
    """Check `compute_optimizer_size(optimizer_state)`: MiB and elements of a state, in that order.

    The answer is given a list of dictionaries, as `optimizer.state.values()` yields them.
    """
    layer = nn.Linear(13, 7)
    mixed = [
        {"step": 5, "codes": torch.ones(300, 7, dtype=torch.uint8), "scale": torch.ones(9)},
        {"step": 5, "half": torch.ones(4, 3, 2, dtype=torch.float16)},
    ]
    cases = [
        Case("AdamW's state for nn.Linear(13, 7)", (stepped_state(layer.parameters()),)),
        Case(
            "AdamW's state for nn.Linear(7, 5) in bfloat16",
            (stepped_state(nn.Linear(7, 5).bfloat16().parameters()),),
        ),
        Case("a state with uint8 and float16 tensors and a Python int as step", (mixed,)),
        Case(
            "AdamW's state for nn.Linear(3, 11) with amsgrad",
            (stepped_state(nn.Linear(3, 11).parameters(), amsgrad=True),),
        ),
        Case("a state before the first step: empty", ([],)),
    ]

    def with_unit(unit):
        return lambda states: (
            memory.compute_optimizer_size(states)[0] * MIB / unit,
            memory.compute_optimizer_size(states)[1],
        )

    def four_bytes(states):
        return sum(n * 4 for n, _ in _sizes(states)) / MIB, memory.compute_optimizer_size(states)[1]

    misconceptions = [
        Misconception(
            lambda states: memory.compute_optimizer_size(states)[::-1],
            "the two values are in the wrong order: size first, then elements.",
        ),
        Misconception(with_unit(1), "the size is in bytes; it should be in MiB."),
        Misconception(
            with_unit(10**6), "the size is in MB: divide by 1024**2, not by 10**6, for MiB."
        ),
        Misconception(
            four_bytes,
            "you took 4 bytes for every element; ask each tensor for its element_size().",
        ),
        Misconception(
            _size_of(lambda name, value: torch.is_tensor(value) and value.ndim > 0),
            "you left out the step: it is a state value like the others, with one element.",
        ),
        Misconception(
            _size_of(lambda name, value: name != "step"),
            "you left out the step: it is a state value like the others, with one element.",
        ),
        Misconception(
            _size_of(lambda name, value: torch.is_tensor(value)),
            "you left out what is not a tensor: a Python number counts as the tensor that "
            "torch.as_tensor makes of it.",
        ),
        Misconception(
            _size_of(lambda name, value: name != "exp_avg_sq"),
            "you counted one moment; go through every value of each dictionary.",
        ),
        Misconception(
            lambda states: memory.compute_optimizer_size(states[:1]),
            "you counted the first parameter only. Is the return inside the loop?",
        ),
        Misconception(
            lambda states: memory.compute_optimizer_size(states[-1:]),
            "you counted the last parameter only. Is the total set to 0 inside the loop?",
        ),
        Misconception(
            lambda states: (memory.compute_optimizer_size(states)[0], len(_sizes(states))),
            "you counted tensors; the second value is the number of elements in them.",
        ),
        Misconception(
            lambda states: (
                sum(s for _, s in _sizes(states)) / MIB,
                memory.compute_optimizer_size(states)[1],
            ),
            "you added the size of one element of each tensor: multiply by how many it has.",
        ),
    ]
    return check_function(
        answer, memory.compute_optimizer_size, cases, misconceptions, tolerance=1e-9
    )


@exercise("2.4")
def count_trainable(answer) -> str:
    """Check `count_trainable(model)`: numbers that are trained, a tied matrix counted once."""
    misconceptions = [
        Misconception(
            lambda model: numbers(model.parameters()),
            "you counted frozen parameters: look at requires_grad.",
        ),
        Misconception(lambda model: numbers(tied_twice(model)), TIED),
        Misconception(
            lambda model: numbers(p for _, p in model.named_parameters(remove_duplicate=False)),
            "you counted frozen parameters, and a tied matrix twice.",
        ),
        Misconception(
            lambda model: numbers(model.state_dict().values()),
            "you counted the state_dict: it also lists buffers, frozen parameters, and a tied "
            "matrix once for each of its names.",
        ),
        Misconception(
            lambda model: len(trainable(model)),
            "you counted tensors; count the numbers in them.",
        ),
        Misconception(lambda model: num_bytes(trainable(model)), "these are bytes; count numbers."),
        Misconception(
            lambda model: sum(len(p) for p in trainable(model)),
            "len() gives the first dimension of a tensor only.",
        ),
        Misconception(
            lambda model: numbers(p for p in model.parameters() if not p.requires_grad),
            "you counted the frozen ones.",
        ),
    ]
    return check_on_models(answer, lambda model: numbers(trainable(model)), misconceptions)


def measured_adamw_bytes(model: nn.Module) -> int:
    """Return the bytes of `torch.optim.AdamW`'s state after two real steps on a copy of `model`."""
    states = stepped_state(copy.deepcopy(model).parameters())
    return sum(n * size for n, size in _sizes(states))


@exercise("2.5")
def adamw_state_bytes(answer) -> str:
    """Check `adamw_state_bytes(model)` against the state of a real `torch.optim.AdamW`."""

    def formula(tensors, moments=2, size=None, step=4):
        each = (moments * p.numel() * (size or p.element_size()) + step for p in tensors)
        return sum(each)

    misconceptions = [
        Misconception(
            lambda model: formula(model.parameters()),
            "you counted frozen parameters: they get no gradient, so no state.",
        ),
        Misconception(
            lambda model: (
                formula(trainable(model))
                + 4 * (len(list(model.parameters())))
                - 4 * len(trainable(model))
            ),
            "a frozen tensor has no step counter either.",
        ),
        Misconception(
            lambda model: formula(trainable(model), step=0),
            "you forgot the step counters: 4 bytes for each trainable tensor.",
        ),
        Misconception(
            lambda model: formula(trainable(model), step=0) + 4,
            "every trainable tensor has a step counter of its own.",
        ),
        Misconception(
            lambda model: formula(trainable(model), size=4),
            "you took 4 bytes for every number; the moments have the dtype of their parameter.",
        ),
        Misconception(
            lambda model: sum((2 * p.numel() + 1) * p.element_size() for p in trainable(model)),
            "the step counter is float32, 4 bytes, whatever the dtype of the parameter.",
        ),
        Misconception(
            lambda model: formula(trainable(model), moments=1),
            "that is one moment; AdamW keeps two for each parameter.",
        ),
        Misconception(
            lambda model: formula(trainable(model), moments=4),
            "you counted weights and gradients too; only the optimizer's state is asked for.",
        ),
        Misconception(lambda model: formula(tied_twice(model)), TIED),
        Misconception(
            lambda model: measured_adamw_bytes(model) / MIB, "that is in MiB; return bytes."
        ),
        Misconception(
            lambda model: 2 * numbers(trainable(model)) + len(trainable(model)),
            "you counted elements; return the bytes they take.",
        ),
    ]
    return check_on_models(answer, measured_adamw_bytes, misconceptions)


def measured_bill(model: nn.Module) -> dict[str, int]:
    """Return the bytes of weights, gradients and AdamW's state of a copy after two real steps."""
    model = copy.deepcopy(model)
    state = sum(n * size for n, size in _sizes(stepped_state(model.parameters())))
    gradients = num_bytes(p.grad for p in model.parameters() if p.grad is not None)
    return _with_total(num_bytes(model.parameters()), gradients, state)


def _with_total(weights: int, gradients: int, state: int) -> dict[str, int]:
    total = weights + gradients + state
    return {"weights": weights, "gradients": gradients, "optimizer": state, "total": total}


@exercise("2.6")
def training_bill(answer) -> str:
    """Check `training_bill(model)`: bytes of weights, gradients, optimizer state, and their sum."""

    def state(tensors, size=None):
        return sum(2 * p.numel() * (size or p.element_size()) + 4 for p in tensors)

    def changed(weights=num_bytes, gradients=num_bytes, optimizer=state):
        """Return a bill whose items are computed by the functions given."""
        return lambda model: _with_total(
            weights(list(model.parameters())),
            gradients(trainable(model)),
            optimizer(trainable(model)),
        )

    def whole_model(item):
        """Return a bill with `item` counted over frozen parameters too."""
        return lambda model: _with_total(
            num_bytes(model.parameters()),
            num_bytes(model.parameters() if item != "optimizer" else trainable(model)),
            state(model.parameters() if item != "gradients" else trainable(model)),
        )

    def in_fp32(model):
        trained = trainable(model)
        weights, gradients = 4 * numbers(model.parameters()), 4 * numbers(trained)
        return _with_total(weights, gradients, state(trained, size=4))

    def trainable_only(model):
        trained = trainable(model)
        return _with_total(num_bytes(trained), num_bytes(trained), state(trained))

    def in_mib(model):
        return {name: size / MIB for name, size in measured_bill(model).items()}

    def total_without(item):
        def bill(model):
            right = measured_bill(model)
            return {**right, "total": right["total"] - right[item]}

        return bill

    misconceptions = [
        Misconception(whole_model("both"), "frozen parameters get no gradient and no state."),
        Misconception(whole_model("gradients"), "frozen parameters get no gradient."),
        Misconception(whole_model("optimizer"), "frozen parameters get no optimizer state."),
        Misconception(trainable_only, "frozen parameters still hold their weights."),
        Misconception(
            in_fp32,
            "you took 4 bytes for every number; weights, gradients and moments have the dtype of "
            "their parameter.",
        ),
        Misconception(
            changed(optimizer=lambda tensors: state(tensors, size=4)),
            "the moments have the dtype of their parameter.",
        ),
        Misconception(
            changed(optimizer=lambda tensors: num_bytes(tensors) + 4 * len(tensors)),
            "AdamW keeps two moments for each trainable parameter.",
        ),
        Misconception(
            changed(optimizer=lambda tensors: 2 * num_bytes(tensors)),
            "the step counters are missing: 4 bytes for each trainable tensor.",
        ),
        Misconception(changed(gradients=lambda tensors: 0), "the gradients are missing."),
        Misconception(in_mib, "these are MiB; return bytes."),
        Misconception(total_without("weights"), "the total leaves the weights out."),
        Misconception(total_without("gradients"), "the total leaves the gradients out."),
        Misconception(total_without("optimizer"), "the total leaves the optimizer's state out."),
    ]
    return check_on_models(answer, measured_bill, misconceptions)
