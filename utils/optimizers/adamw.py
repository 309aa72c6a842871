"""Adam and AdamW from their papers: averages, bias correction, one step, and the optimizers.

Sources: Adam, Kingma and Ba 2015 (Algorithm 1). Decoupled weight decay, Loshchilov and Hutter 2019
(Algorithm 2). AMSGrad, Reddi et al. 2018 (Algorithm 2).

Functions that end in an underscore change their arguments in place and hold the mathematics; the
functions without one return new tensors and leave their arguments alone.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from .base import CheckedOptimizer, new_step_counter, require_floating, require_number


def ema(previous, value, beta: float):
    """Return the exponential moving average after one more value.

        average = beta * previous + (1 - beta) * value

    `previous` and `value` are numbers or tensors of one shape. `beta` is the share that the past
    keeps; the average looks back over about 1 / (1 - beta) values.
    Raises: ValueError if beta is outside [0, 1).
    Source: Adam, Algorithm 1, the two moment updates.
    """
    require_number("beta", beta, below=1.0)
    return beta * previous + (1 - beta) * value


def ema_sequence(values: Iterable, beta: float) -> list:
    """Return the list of moving averages after each value, starting from zero.

        average_t = (1 - beta) * sum over i of beta ** (t - i) * value_i

    As many averages as values; none for no values. The zero start pulls the first averages towards
    zero: divide average_t by `bias_correction(beta, t)` to undo it.
    """
    averages, average = [], 0.0
    for value in values:
        average = ema(average, value, beta)
        averages.append(average)
    return averages


def bias_correction(beta: float, step: int) -> float:
    """Return the sum of the weights that an average started from zero has given out so far.

        1 - beta ** step = (1 - beta) * (1 + beta + ... + beta ** (step - 1))

    Dividing the average by it makes the weights sum to one. `step` counts from 1.
    Raises: ValueError if beta is outside [0, 1) or step is below 1.
    Source: Adam, Section 3.
    """
    require_number("beta", beta, below=1.0)
    require_number("step", step, low=1.0)
    return 1 - beta**step


def adamw_step_(
    param: Tensor,
    grad: Tensor,
    first: Tensor,
    second: Tensor,
    step: int,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    max_second: Tensor | None = None,
) -> None:
    """Change `param`, `first`, `second` (and `max_second`) in place by one AdamW step.

        param  <- (1 - lr * weight_decay) * param            decoupled weight decay
        first  <- beta1 * first  + (1 - beta1) * grad        first moment
        second <- beta2 * second + (1 - beta2) * grad ** 2   second moment
        param  <- param - lr * (first / c1) / (sqrt(second / c2) + eps)

    with c1, c2 the bias corrections of beta1, beta2 at `step`, which counts from 1. The stored
    moments stay uncorrected. With `max_second` (AMSGrad) the largest second moment so far takes
    the place of `second` in the last line. All tensors have one shape; `grad` is only read.
    A complex number is treated as a pair of real ones.
    Raises: ValueError for unequal shapes or a step below 1.
    """
    divisor = second if max_second is None else max_second
    if not param.shape == grad.shape == first.shape == second.shape == divisor.shape:
        shapes = [tuple(tensor.shape) for tensor in (param, grad, first, second, divisor)]
        raise ValueError(f"param, grad and the moments must have one shape, got {shapes}")
    beta1, beta2 = betas
    first_correction, second_correction = bias_correction(beta1, step), bias_correction(beta2, step)
    if param.is_complex():
        pairs = map(torch.view_as_real, (param, grad, first, second, divisor))
        param, grad, first, second, divisor = pairs

    if weight_decay:
        param.mul_(1 - lr * weight_decay)
    first.lerp_(grad, 1 - beta1)
    second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    if max_second is not None:
        torch.maximum(divisor, second, out=divisor)
    denominator = divisor.sqrt().div_(math.sqrt(second_correction)).add_(eps)
    param.addcdiv_(first, denominator, value=-lr / first_correction)


def adam_l2_step_(param, grad, first, second, step, *, weight_decay, **options) -> None:
    """Change `param` and its moments in place by one step of Adam with an L2 penalty.

        grad <- grad + weight_decay * param, then the AdamW step without decay

    The penalty passes through both moments, so a weight with large gradients is decayed less.
    Arguments, shapes and errors as in `adamw_step_`.
    """
    if weight_decay:
        grad = grad.add(param, alpha=weight_decay)
    adamw_step_(param, grad, first, second, step, weight_decay=0.0, **options)


def _on_copies(step_: Callable, param, grad, first, second, step, max_second, **options) -> tuple:
    check_adam_hyperparameters(options)
    require_floating("param", param, complex_too=True)
    require_floating("grad", grad, complex_too=True)
    copies = [tensor.detach().clone() for tensor in (param, first, second)]
    if max_second is not None:
        copies.append(max_second.detach().clone())
        options["max_second"] = copies[3]
    with torch.no_grad():
        step_(copies[0], grad, copies[1], copies[2], step, **options)
    return tuple(copies)


def adamw_step(
    param: Tensor,
    grad: Tensor,
    first: Tensor,
    second: Tensor,
    step: int,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    max_second: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Return the new (param, first, second), and max_second as a fourth where one was given.

    Formula and shapes: `adamw_step_`. No argument is changed. Start from zero moments and step 1.
    Raises: ValueError for unequal shapes, a step below 1 or a hyperparameter out of range; TypeError
    for whole numbers as weights or gradients.
    """
    options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
    return _on_copies(adamw_step_, param, grad, first, second, step, max_second, **options)


def adam_l2_step(
    param: Tensor,
    grad: Tensor,
    first: Tensor,
    second: Tensor,
    step: int,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    max_second: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Return what `adamw_step` returns, for Adam with an L2 penalty: see `adam_l2_step_`."""
    options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
    return _on_copies(adam_l2_step_, param, grad, first, second, step, max_second, **options)


class _Adam(CheckedOptimizer):
    """State and bookkeeping that AdamW and AdamL2 share; `step_` is the mathematics."""

    step_: ClassVar[Callable]

    def __init__(self, params, lr, betas, eps, weight_decay, amsgrad):
        defaults = {"lr": lr, "betas": betas, "eps": eps}
        super().__init__(params, {**defaults, "weight_decay": weight_decay, "amsgrad": amsgrad})

    def check_group(self, group: dict) -> None:
        check_adam_hyperparameters(group)
        if not isinstance(group["amsgrad"], bool):
            raise ValueError(f"amsgrad must be True or False, got {group['amsgrad']!r}")

    def update(self, param: Tensor, grad: Tensor, state: dict, group: dict) -> None:
        if not state:
            state["step"] = new_step_counter()
            state["exp_avg"] = torch.zeros_like(param)
            state["exp_avg_sq"] = torch.zeros_like(param)
        if group["amsgrad"] and "max_exp_avg_sq" not in state:
            state["max_exp_avg_sq"] = torch.zeros_like(param)
        state["step"] += 1
        type(self).step_(
            param,
            grad,
            state["exp_avg"],
            state["exp_avg_sq"],
            state["step"].item(),
            lr=group["lr"],
            betas=group["betas"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            max_second=state["max_exp_avg_sq"] if group["amsgrad"] else None,
        )


def check_adam_hyperparameters(group: dict) -> None:
    """Raise ValueError unless lr, betas, eps and weight_decay are finite and in Adam's ranges."""
    for name in ("lr", "eps", "weight_decay"):
        require_number(name, group[name])
    betas = group["betas"]
    if not isinstance(betas, Sequence) or len(betas) != 2:
        raise ValueError(f"betas must be two numbers, got {betas!r}")
    for name, beta in zip(("betas[0]", "betas[1]"), betas, strict=True):
        require_number(name, beta, below=1.0)


class AdamW(_Adam):
    """AdamW with decoupled weight decay: equals `torch.optim.AdamW`, states and all.

    State of each parameter that has had a gradient, in its own shape and dtype: `exp_avg` (first
    moment), `exp_avg_sq` (second moment), with `amsgrad` also `max_exp_avg_sq`; and `step`, a 0-D
    float of 4 bytes. For n float32 elements: 8n + 4 bytes, 12n + 4 with `amsgrad`.

    A gradient of zero still moves a parameter by its first moment, and decay still applies; a
    gradient of None does nothing. A NaN or infinite gradient is not caught and spoils both moments
    for good: guard the step with `all_finite`. `amsgrad` takes the maximum over uncorrected second
    moments and corrects it afterwards, as PyTorch does; the paper has no correction.
    Raises: ValueError for a hyperparameter out of range, in any group, or a parameter given twice;
    TypeError at the step for sparse gradients and parameters that are not floating point.
    """

    step_ = staticmethod(adamw_step_)

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, *, amsgrad=False
    ):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad)


class AdamL2(_Adam):
    """Adam with an L2 penalty in the gradient: equals `torch.optim.Adam(weight_decay=...)`.

    States, bytes and errors as in `AdamW`; only the place of the weight decay differs.
    """

    step_ = staticmethod(adam_l2_step_)

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, *, amsgrad=False
    ):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad)
