"""Adafactor from its paper: decay, clipping, step size, one step, and the optimizer.

Source: Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost",
Algorithms 1 to 5. The two libraries in use complete the paper differently; `convention` names
which one is followed, and it is never chosen silently:

| | "transformers" | "torch" |
|---|---|---|
| eps1 | added to the squared gradient, as in the paper | lower bound of the estimate |
| step size | `lr`, or min(0.01, 1 / sqrt(t)) if `relative_step` | min(`lr`, 1 / sqrt(t)) |
| times max(eps2, RMS(param)) | if `scale_parameter` | always |
| weight decay multiplied by | the step size with its scale | `lr` |
| first moment | if `beta1` is given | never |
| float16, bfloat16 | states in float32 | states in the gradient's dtype |

With its default options "transformers" is the paper's Algorithm 5.
"""

import math

import torch
from torch import Tensor

from .base import (
    CheckedOptimizer,
    new_step_counter,
    require_floating,
    require_number,
    require_positive,
)
from .factoring import factored_second_moment, new_statistics, row_col_update_

CONVENTIONS = ("transformers", "torch")
DEFAULTS = {
    "lr": None,
    "eps": None,
    "clip_threshold": 1.0,
    "decay_rate": -0.8,
    "beta1": None,
    "weight_decay": 0.0,
    "scale_parameter": True,
    "relative_step": True,
    "warmup_init": False,
}
HALF = (torch.float16, torch.bfloat16)


def check_adafactor_options(options: dict) -> None:
    """Return nothing if the options are in range and belong to their convention.

    Raises: ValueError that names the option, what was given and what is accepted.
    """
    convention, lr = options["convention"], options["lr"]
    if convention not in CONVENTIONS:
        raise ValueError(f"convention must be one of {list(CONVENTIONS)}, got {convention!r}")
    for name in ("scale_parameter", "relative_step", "warmup_init"):
        if not isinstance(options[name], bool):
            raise ValueError(f"{name} must be True or False, got {options[name]!r}")
    if convention == "torch":
        for name in ("scale_parameter", "relative_step", "warmup_init", "beta1"):
            if options[name] != DEFAULTS[name]:
                raise ValueError(
                    f"{name}={options[name]!r} does not exist in the 'torch' convention, which "
                    f"always has {name}={DEFAULTS[name]!r}"
                )
    elif options["relative_step"] and lr is not None:
        raise ValueError(
            f"lr={lr!r} would be ignored with relative_step=True: give lr with relative_step=False,"
            " or leave lr out"
        )
    elif options["warmup_init"] and not options["relative_step"]:
        raise ValueError("warmup_init=True needs relative_step=True: lr alone sets the step size")
    if convention == "torch" or not options["relative_step"]:
        require_number("lr", lr)
    if options["beta1"] is not None:
        require_number("beta1", options["beta1"], below=1.0)
    require_number("weight_decay", options["weight_decay"])
    require_positive("clip_threshold", options["clip_threshold"])
    second_moment_decay(1, options["decay_rate"])
    _resolve_eps(options["eps"], convention, torch.float32)


def _resolve_eps(eps, convention: str, dtype: torch.dtype) -> tuple[float, float]:
    """Return (eps1, eps2) as numbers; None stands for each convention's own value."""
    default = torch.finfo(dtype).eps if convention == "torch" else 1e-30
    eps = (None, 1e-3) if eps is None else eps
    if not isinstance(eps, (tuple, list)) or len(eps) != 2:
        raise ValueError(f"eps must be two numbers (eps1, eps2), got {eps!r}")
    eps1 = default if eps[0] is None else eps[0]
    require_positive("eps1", eps1)  # zero would divide a zero gradient by zero
    require_number("eps2", eps[1])
    return eps1, eps[1]


def second_moment_decay(step: int, decay_rate: float = -0.8) -> float:
    """Return beta2 of this step: 1 - step ** decay_rate, which is 0 at step 1 and grows towards 1.

    Raises: ValueError if step is below 1 or decay_rate above 0.
    Source: Section 7.2 and Algorithm 5.
    """
    require_number("step", step, low=1.0)
    require_number("-decay_rate", -decay_rate)
    return 1 - step**decay_rate


def root_mean_square(tensor: Tensor) -> float:
    """Return sqrt(mean of the squared elements) as a number; 0 for an empty tensor."""
    return torch.linalg.vector_norm(tensor).item() / math.sqrt(max(tensor.numel(), 1))


def parameter_scale(param: Tensor, eps2: float = 1e-3) -> float:
    """Return max(eps2, RMS(param)): steps in proportion to the weights, but never to zero.

    Source: Algorithm 5, the line of alpha.
    """
    return max(eps2, root_mean_square(param))


def relative_step_size(step: int, warmup_init: bool = False, cap: float = 1e-2) -> float:
    """Return min(cap, 1 / sqrt(step)); with `warmup_init`, min(1e-6 * step, 1 / sqrt(step)).

    Raises: ValueError if step is below 1.
    Source: Algorithm 5 and Section 8, the line of rho.
    """
    require_number("step", step, low=1.0)
    return min(1e-6 * step if warmup_init else cap, 1 / math.sqrt(step))


def clipping_divisor(update: Tensor, threshold: float = 1.0) -> float:
    """Return max(1, RMS(update) / threshold), by which `update_clipping` divides."""
    return max(1.0, root_mean_square(update) / threshold)


def update_clipping(update: Tensor, threshold: float = 1.0) -> Tensor:
    """Return the update, divided where needed so that its RMS is at most `threshold`.

        update / max(1, RMS(update) / threshold)

    Raises: ValueError unless threshold is a finite number above 0.
    Source: Section 6 and Algorithm 5.
    """
    require_positive("threshold", threshold)
    return update / clipping_divisor(update, threshold)


def _normalized_gradient(grad, statistics, beta2, eps1, convention):
    """Return grad / sqrt(estimated second moment), after updating the statistics in place."""
    added = eps1 if convention == "transformers" else 0.0
    squared = grad.square()
    if added:
        squared.add_(added)
    if len(statistics) == 1:
        statistics[0].lerp_(squared.to(statistics[0].dtype), 1 - beta2)
    else:
        row_col_update_(*statistics, squared, beta2, "mean")
    del squared  # as large as the parameter; freed before the next tensor of that size is made

    wide = [statistic.to(grad.dtype) for statistic in statistics]
    if convention == "torch":
        if len(wide) == 2:
            estimate = factored_second_moment(*wide, "mean", floor=eps1)
        else:
            estimate = wide[0].clone()
        return estimate.clamp_(min=eps1 * eps1).rsqrt_().mul_(grad)
    if len(wide) == 1:
        return wide[0].rsqrt().mul_(grad)
    # Row and column one after the other: the product of two tiny statistics would underflow.
    row, col = wide
    update = grad * (row / row.mean(-1, keepdim=True)).rsqrt_()[..., :, None]
    return update.mul_(col.rsqrt()[..., None, :])


def adafactor_step_(
    param: Tensor,
    grad: Tensor,
    statistics: tuple[Tensor, ...],
    step: int,
    *,
    convention: str,
    lr: float | None,
    eps: tuple[float | None, float] | None,
    clip_threshold: float,
    decay_rate: float,
    beta1: float | None,
    weight_decay: float,
    scale_parameter: bool,
    relative_step: bool,
    warmup_init: bool,
    first: Tensor | None = None,
) -> None:
    """Change `param`, `statistics` (and `first`) in place by one Adafactor step.

        V     <- estimate from the statistics, after adding grad ** 2 with beta2 = 1 - step ** -0.8
        U     <- grad / sqrt(V), clipped to the RMS `clip_threshold`
        param <- (1 - decay) * param - step_size * U

    `statistics` starts as `new_statistics(param)` and `step` counts from 1. `step_size`, `decay` and
    the place of eps = (eps1, eps2) depend on `convention`: see the table of this module. With
    `beta1` a moving average of step_size * U, kept in `first`, is subtracted in its place.
    The options are not checked here: see `check_adafactor_options`.
    """
    if param.numel() == 0:
        return
    eps1, eps2 = _resolve_eps(eps, convention, param.dtype)
    scale = parameter_scale(param, eps2) if scale_parameter else 1.0
    if convention == "torch":
        step_size = scale * relative_step_size(step, cap=lr)
        decay = weight_decay * lr
    else:
        step_size = scale * (relative_step_size(step, warmup_init) if relative_step else lr)
        decay = weight_decay * step_size

    weights = param
    if param.dtype in HALF:
        weights, grad = param.float(), grad.float()
    beta2 = second_moment_decay(step, decay_rate)
    update = _normalized_gradient(grad, statistics, beta2, eps1, convention)
    step_size /= clipping_divisor(update, clip_threshold)
    if decay:
        weights.mul_(1 - decay)
    if beta1 is None:
        weights.sub_(update, alpha=step_size)
    else:
        weights.sub_(first.mul_(beta1).add_(update, alpha=(1 - beta1) * step_size))
    if weights is not param:
        param.copy_(weights)


def adafactor_step(
    param: Tensor,
    grad: Tensor,
    statistics: tuple[Tensor, ...],
    step: int,
    *,
    convention: str,
    first: Tensor | None = None,
    **options,
) -> tuple:
    """Return the new (param, statistics), and `first` as a third where `beta1` is given.

    Formula and options: `adafactor_step_`; options left out have the defaults of `Adafactor`, but
    the "torch" convention needs an `lr`. No argument is changed.
    Raises: ValueError for unfit shapes and options; TypeError for an unknown option.
    """
    options = {**DEFAULTS, **options, "convention": convention}
    check_adafactor_options(options)
    require_number("step", step, low=1.0)
    require_floating("param", param)
    require_floating("grad", grad)
    shapes = [tuple(statistic.shape) for statistic in statistics]
    expected = [tuple(statistic.shape) for statistic in new_statistics(param)]
    if grad.shape != param.shape or shapes != expected:
        raise ValueError(
            f"a param of shape {tuple(param.shape)} needs a grad of that shape and statistics "
            f"{expected}, got {tuple(grad.shape)} and {shapes}"
        )
    if (options["beta1"] is None) != (first is None):
        raise ValueError("beta1 and first belong together: give both or neither")
    new_param, *new_statistic = (t.detach().clone() for t in (param, *statistics))
    if first is not None:
        first = first.detach().clone()
    with torch.no_grad():
        adafactor_step_(new_param, grad, new_statistic, step, first=first, **options)
    result = new_param, tuple(new_statistic)
    return result if first is None else (*result, first)


class Adafactor(CheckedOptimizer):
    """Adafactor that follows the library named by `convention`, "transformers" or "torch".

    State of each parameter that has had a gradient: `step`, a 0-D float of 4 bytes; for 2 and more
    dimensions `exp_avg_sq_row` (shape without the last dimension) and `exp_avg_sq_col` (without the
    last but one), which hold means; below 2 dimensions `exp_avg_sq`; with `beta1` also `exp_avg`.
    An n by m float32 matrix takes 4 (n + m) + 4 bytes.

    The options are those of `transformers.optimization.Adafactor`, with the same meaning and
    defaults; the table at the head of the module says what "torch" does instead, and an option it
    does not have is an error. For `torch.optim.Adafactor`, `clip_threshold` is its d, `decay_rate`
    its beta2_decay, `lr` defaults to 0.01. `eps` is (eps1, eps2); eps1=None is 1e-30, in the "torch"
    convention the smallest difference to 1 of the parameter's dtype.

    With `relative_step` there is no lr, and a scheduler that multiplies it fails: give
    `lr=..., relative_step=False` to use one. A gradient of zero or None leaves a parameter without
    weight decay where it is; NaN is not caught: see `all_finite`. Empty parameters are left alone.
    Raises: ValueError for options out of range or foreign to the convention, in any group;
    TypeError at the step for complex parameters and sparse gradients.
    """

    def __init__(
        self,
        params,
        lr=None,
        *,
        convention,
        eps=None,
        clip_threshold=1.0,
        decay_rate=-0.8,
        beta1=None,
        weight_decay=0.0,
        scale_parameter=True,
        relative_step=True,
        warmup_init=False,
    ):
        defaults = {
            "lr": 1e-2 if lr is None and convention == "torch" else lr,
            "convention": convention,
            "eps": eps,
            "clip_threshold": clip_threshold,
            "decay_rate": decay_rate,
            "beta1": beta1,
            "weight_decay": weight_decay,
            "scale_parameter": scale_parameter,
            "relative_step": relative_step,
            "warmup_init": warmup_init,
        }
        super().__init__(params, defaults)

    def check_group(self, group: dict) -> None:
        check_adafactor_options(group)

    def check_gradient(self, param: Tensor) -> None:
        super().check_gradient(param)
        if param.is_complex():
            raise TypeError(f"Adafactor needs real parameters, got {param.dtype}")

    def update(self, param: Tensor, grad: Tensor, state: dict, group: dict) -> None:
        names = ("exp_avg_sq_row", "exp_avg_sq_col") if param.ndim >= 2 else ("exp_avg_sq",)
        if not state:
            widen = group["convention"] == "transformers" and param.dtype in HALF
            dtype = torch.float32 if widen else param.dtype
            state["step"] = new_step_counter()
            state.update(zip(names, new_statistics(param, dtype), strict=True))
            if group["beta1"] is not None:
                state["exp_avg"] = torch.zeros_like(param, dtype=dtype)
        state["step"] += 1
        statistics = tuple(state[name] for name in names)
        options = {name: group[name] for name in (*DEFAULTS, "convention")}
        step = state["step"].item()
        adafactor_step_(param, grad, statistics, step, first=state.get("exp_avg"), **options)

    def load_state_dict(self, state_dict: dict) -> None:
        """Load a saved state as torch does, but keep the dtype in which each tensor was saved."""
        super().load_state_dict(state_dict)
        self.restore_saved_tensors(state_dict)
