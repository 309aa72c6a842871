"""Checks of lesson 06: what both Adafactors keep for a model, and a learning rate that is obeyed."""

import copy
import math
from collections.abc import Callable

import torch
from torch import nn
from transformers.optimization import Adafactor as TransformersAdafactor

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
    MODELS,
    TIED,
    TiedModel,
    check_on_models,
    check_part,
    num_bytes,
    numbers,
    tied_twice,
    trainable,
)

LIBRARIES = {"torch": torch.optim.Adafactor, "transformers": TransformersAdafactor}


def small_network() -> nn.Module:
    """Return the network of exercise 6.1."""
    return nn.Sequential(nn.Linear(300, 200), nn.LayerNorm(200), nn.Linear(200, 50))


def measured_elements(model: nn.Module, library: str) -> int:
    """Return the elements of the library's Adafactor state after a real step on a copy of `model`."""
    parameters = trainable(copy.deepcopy(model))
    if not parameters:
        return 0
    optimizer = LIBRARIES[library](parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return memory.compute_optimizer_size(optimizer.state.values())[1]


def _statistics(parameter: torch.Tensor) -> int:
    *others, rows, columns = (1, 1, *parameter.shape)
    return parameter.numel() if parameter.ndim < 2 else math.prod(others) * (rows + columns)


@exercise("6.1")
def predicted(answer) -> str:
    """Check the prediction `(torch's elements, transformers' elements)` for three layers."""
    require_attempt(answer)
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong("A pair is expected: (PyTorch's elements, transformers' elements).")
    model = small_network()
    right = {library: measured_elements(model, library) for library in LIBRARIES}
    weights, tensors = numbers(model.parameters()), len(list(model.parameters()))
    kept = sum(map(_statistics, model.parameters()))
    matrices = sum(_statistics(p) for p in model.parameters() if p.ndim == 2)
    for position, library in enumerate(LIBRARIES):
        other = right["transformers" if library == "torch" else "torch"]
        mistakes = [
            Misconception(
                other,
                "that is the other library's: PyTorch's comes first, and transformers keeps an "
                "RMS for each tensor.",
            ),
            Misconception(kept, "the steps are missing: one element for each tensor."),
            Misconception(matrices, "biases and LayerNorm are kept whole, and each has a step."),
            Misconception(matrices + right[library] - kept, "biases and LayerNorm are kept whole."),
            Misconception(2 * weights + tensors, "that is AdamW's state."),
            Misconception(
                weights + tensors, "a matrix leaves its rows plus its columns, not its elements."
            ),
            Misconception(kept + 1, "every tensor has a step of its own."),
            Misconception(kept + 3, "you took one step a layer; it is one a tensor."),
            Misconception(4 * right[library], "these are bytes; count elements."),
        ]
        check_part(library, answer[position], right[library], mistakes, 1e-9)
    return f"{right['torch']:,} and {right['transformers']:,} elements."


def _convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(6, 4, (3, 5)), nn.Conv2d(4, 2, 1), nn.Conv1d(2, 5, 3))


_WITH_CONVOLUTIONS = {
    **MODELS,
    "two convolutions over two dimensions and one over one": _convolutions,
}


@exercise("6.2")
def adafactor_state_elements(answer) -> str:
    """Check `adafactor_state_elements(model, library)` against both libraries' real states."""
    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")

    def formula(tensors, extra: int, kept: Callable = _statistics) -> int:
        return sum(kept(p) + extra for p in tensors)

    def first_two(parameter):
        shape = parameter.shape
        return parameter.numel() if len(shape) < 2 else math.prod(shape[2:]) * (shape[0] + shape[1])

    def flattened(parameter):
        if parameter.ndim < 2:
            return parameter.numel()
        return parameter.shape[0] + parameter.numel() // parameter.shape[0]

    for library in LIBRARIES:
        extra = 1 if library == "torch" else 2
        other = 3 - extra
        misconceptions = [
            Misconception(
                lambda m, e=extra: formula(m.parameters(), e), "frozen: no state at all."
            ),
            Misconception(
                lambda m, e=extra: formula(trainable(m), 0) + e * len(list(m.parameters())),
                "a frozen tensor has neither a step nor an RMS.",
            ),
            Misconception(lambda m, e=extra: formula(tied_twice(m), e), TIED),
            Misconception(
                lambda m, e=other: formula(trainable(m), e),
                "transformers keeps an RMS for each tensor, PyTorch does not.",
            ),
            Misconception(
                lambda m: formula(trainable(m), 0), "you forgot the step of each trained tensor."
            ),
            Misconception(
                lambda m, e=extra: formula(trainable(m), 0) + e,
                "each trained tensor has its own step (and RMS).",
            ),
            Misconception(
                lambda m, e=extra: formula(trainable(m), e, lambda p: sum(p.shape)),
                "of more than two dimensions only the last two are factored, once for each index "
                "of the others.",
            ),
            Misconception(
                lambda m, e=extra: formula(trainable(m), e, first_two),
                "the last two dimensions are factored, not the first two.",
            ),
            Misconception(
                lambda m, e=extra: formula(trainable(m), e, flattened),
                "a convolution is not flattened to a matrix: its last two dimensions are factored.",
            ),
            Misconception(
                lambda m, e=extra: formula(trainable(m), e, lambda p: 2 * p.numel()),
                "that is AdamW's state.",
            ),
            Misconception(
                lambda m, e=extra: formula(
                    trainable(m), e, lambda p: _statistics(p) if p.ndim > 1 else 0
                ),
                "biases are not factored, but kept whole.",
            ),
            Misconception(
                lambda m: num_bytes(trainable(m)), "these are bytes of weights; count elements."
            ),
        ]
        try:
            check_on_models(
                lambda model, name=library: answer(model, name),
                lambda model, name=library: measured_elements(model, name),
                misconceptions,
                _WITH_CONVOLUTIONS,
            )
        except Wrong as wrong:
            raise Wrong(f'library="{library}"\n{wrong}') from None
    return f"{len(LIBRARIES) * len(_WITH_CONVOLUTIONS)} cases pass."


def _table_and_head() -> nn.Module:
    """Return a model in which parameters and Adafactor's statistics rank differently."""
    model = nn.Sequential()
    model.add_module("table", nn.Embedding(120, 4))
    model.add_module("square", nn.Linear(40, 40))
    model.add_module("norm", nn.LayerNorm(90))
    model.add_module("head", nn.Linear(40, 3))
    return model


def _table_frozen() -> nn.Module:
    model = _table_and_head()
    model.table.requires_grad_(False)
    return model


_RANKED = {
    "a long token table, a square matrix, a LayerNorm, a head": _table_and_head,
    "the same with the token table frozen": _table_frozen,
    "three convolutions": _convolutions,
    "a token table tied to the output layer": lambda: TiedModel(17, 5),
}


def _ranked(model: nn.Module, count: int, size: Callable = _statistics, **options) -> list[str]:
    named = [(name, size(p)) for name, p in model.named_parameters(**options) if p.requires_grad]
    return [name for name, _ in sorted(named, key=lambda pair: -pair[1])[:count]]


@exercise("6.3")
def largest_states(answer) -> str:
    """Check `largest_states(model, count)`: names by the numbers that Adafactor keeps of each."""
    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")

    def with_frozen(model, count):
        sizes = {name: _statistics(p) for name, p in model.named_parameters()}
        return sorted(sizes, key=lambda name: -sizes[name])[:count]

    def ties_by_name(model, count):
        sizes = {n: _statistics(p) for n, p in model.named_parameters() if p.requires_grad}
        return sorted(sizes, key=lambda name: (-sizes[name], name))[:count]

    def ties_reversed(model, count):
        named = [(n, _statistics(p)) for n, p in model.named_parameters() if p.requires_grad]
        return [name for name, _ in sorted(named, key=lambda pair: pair[1])[::-1][:count]]

    def in_model_order(model, count):
        largest = _ranked(model, count)
        return [name for name, _ in model.named_parameters() if name in largest]

    wrong = {
        "you ranked by the number of parameters; Adafactor keeps rows plus columns of a matrix.": (
            lambda m, c: _ranked(m, c, torch.Tensor.numel)
        ),
        "frozen parameters have no state.": with_frozen,
        "the order is smallest first; turn it round.": lambda m, c: _ranked(
            m, c, lambda p: -_statistics(p)
        ),
        "the names are right; put the largest first.": in_model_order,
        "equal ones should come in the model's order, not by name.": ties_by_name,
        "equal ones should come in the model's order: turning a sorted list round turns them "
        "round, too.": ties_reversed,
        "vectors count, too: they are kept whole.": lambda m, c: _ranked(
            m, c, lambda p: _statistics(p) if p.ndim > 1 else 0
        ),
        "you gave all of them; only the first `count` are asked for.": lambda m, c: _ranked(
            m, len(list(m.parameters()))
        ),
    }
    cases = [
        Case(f"{label}, count={count}", (label, count)) for label in _RANKED for count in (1, 3, 20)
    ]

    def built(function):
        return lambda label, count: function(_RANKED[label](), count)

    misconceptions = [Misconception(built(function), hint) for hint, function in wrong.items()]
    return check_function(
        built(lambda model, count: _as_list(answer(model, count))),
        built(_ranked),
        cases,
        misconceptions,
    )


def _as_list(value):
    return list(value) if isinstance(value, tuple) else value


def _moves(make: Callable, lr: float, size: float) -> list[float]:
    """Return how far weights of `size` move at lr, and after a schedule has halved it."""
    weight = nn.Parameter(torch.full((4, 3), size, dtype=torch.float64))
    optimizer = make([weight], lr)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"an optimizer is expected, got {type(optimizer).__name__}")
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    moves = []
    for _ in range(2):
        before = weight.detach().clone()
        weight.grad = torch.full_like(weight, 0.3)
        optimizer.step()
        schedule.step()
        moves.append((before - weight.detach()).mean().item())
    return moves


@exercise("6.4")
def obedient_adafactor(answer) -> str:
    """Check `obedient_adafactor(parameters, lr)`: steps of size `lr`, scheduled, whatever the size."""
    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")

    def built(**options):
        return lambda parameters, lr: TransformersAdafactor(parameters, **({"lr": lr} | options))

    fixed = {"relative_step": False, "scale_parameter": False}
    wrong = {
        "the steps grow with the weights. In transformers' version that can be switched off; "
        "PyTorch's always does it.": built(relative_step=False),
        "the learning rate is fixed in your function; use the one it is given.": built(
            **fixed, lr=1e-3
        ),
        "that moves as AdamW does, weight decay and all; build an Adafactor.": (
            lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr)
        ),
        "beta1 keeps a first moment, 4 bytes a weight, and smooths the steps.": built(
            **fixed, beta1=0.9
        ),
    }
    cases = [
        Case(f"lr={lr:g}, weights of {size:g}", (lr, size))
        for lr, size in ((1e-3, 1.0), (2e-3, 5.0), (1e-2, 0.01))
    ]

    def moved(make):
        return lambda lr, size: _moves(make, lr, size)

    praise = check_function(
        moved(answer),
        moved(built(**fixed)),
        cases,
        [Misconception(moved(make), hint) for hint, make in wrong.items()],
        error_hints={
            "Cannot combine": "with relative steps there is no learning rate to give.",
            "NoneType": "the learning rate is None: pass lr on.",
            "unexpected keyword": "these are options of the version in transformers.",
        },
    )
    optimizer = answer([nn.Parameter(torch.ones(2, 2))], 1e-3)
    if not isinstance(optimizer, TransformersAdafactor):
        raise Wrong(
            f"The steps are right, but this is {type(optimizer).__name__}; the exercise asks for "
            "the Adafactor of transformers, and its small state."
        )
    return praise
