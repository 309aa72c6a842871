"""What the course's optimizers share: checked input, and a step that refuses before it changes."""

import math
import numbers
from collections.abc import Iterable
from itertools import chain

import torch
from torch import Tensor


def require_number(name: str, value: object, low: float = 0.0, below: float = math.inf) -> None:
    """Return nothing if `value` is a finite real number with low <= value < below.

    Raises: ValueError that names `name`, the accepted range and the value given.
    """
    # The first test spares the slow second one: this runs for every parameter of every step.
    number = type(value) is float or (
        isinstance(value, numbers.Real) and not isinstance(value, bool)
    )
    if not (number and low <= value < below):  # False for NaN, and for infinity: below <= infinity
        limit = f">= {low:g}" if below == math.inf else f"in [{low:g}, {below:g})"
        raise ValueError(f"{name} must be a finite number {limit}, got {value!r}")


def require_floating(name: str, tensor: Tensor, complex_too: bool = False) -> None:
    """Return nothing if `tensor` is floating point, or with `complex_too` complex.

    Raises: TypeError that names `name` and the dtype given.
    """
    if not (tensor.is_floating_point() or (complex_too and tensor.is_complex())):
        kinds = "floating point or complex" if complex_too else "real floating point"
        raise TypeError(f"{name} must be {kinds}, got {tensor.dtype}")


def require_positive(name: str, value: object) -> None:
    """Return nothing if `value` is a finite real number above 0; otherwise raise ValueError."""
    require_number(name, value)
    if value == 0:
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Return True if no tensor holds a NaN or an infinity; an empty iterable is finite.

    One non-finite gradient spoils the moments of Adam for good. The guard around a step:

        if all_finite(p.grad for p in params if p.grad is not None):
            optimizer.step()
    """
    # A finite sum proves finite terms at the price of one read. A sum may also overflow
    # although every term is finite, so only then is each term looked at.
    return all(
        bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())
        for tensor in tensors
    )


def new_step_counter() -> Tensor:
    """Return the zero that counts steps: 0-D, on the CPU, 4 bytes (8 if float64 is the default)."""
    dtype = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
    return torch.tensor(0.0, dtype=dtype)


class CheckedOptimizer(torch.optim.Optimizer):
    """A `torch.optim.Optimizer` that refuses bad input before it changes anything.

    A subclass supplies `check_group(group)` and `update(param, grad, state, group)`, and may
    extend `check_gradient(param)`. A parameter without a gradient is skipped: no update, no decay,
    no state. The same tensor twice is an error, because it would be stepped twice.
    """

    def check_group(self, group: dict) -> None:
        raise NotImplementedError

    def update(self, param: Tensor, grad: Tensor, state: dict, group: dict) -> None:
        raise NotImplementedError

    def check_gradient(self, param: Tensor) -> None:
        """Raise TypeError unless the gradient is dense and floating point (or complex)."""
        name = type(self).__name__
        if param.grad.layout != torch.strided:
            raise TypeError(f"{name} needs dense gradients, got layout {param.grad.layout}")
        if not (param.is_floating_point() or param.is_complex()):
            raise TypeError(f"{name} needs floating-point parameters, got {param.dtype}")

    def add_param_group(self, param_group: dict) -> None:
        """Add a parameter group after checking it; see `torch.optim.Optimizer`.

        Raises: ValueError for a hyperparameter out of range or a parameter listed twice.
        """
        self.check_group({**self.defaults, **param_group})
        params = param_group["params"]
        if not isinstance(params, (Tensor, set)):  # torch itself refuses sets: they have no order
            param_group["params"] = params = list(params)
            tensors = [item[1] if isinstance(item, tuple) else item for item in params]
            if len({id(tensor) for tensor in tensors}) < len(tensors):
                raise ValueError(
                    f"a parameter is listed twice in a group of {len(tensors)}: "
                    "each tensor may be given once"
                )
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure=None):
        """Return the closure's loss (None without one) after one update of every parameter.

        Raises: TypeError or ValueError, before anything has changed, for input that cannot be used.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = [(p, group) for group in self.param_groups for p in group["params"]]
        work = [(param, group) for param, group in work if param.grad is not None]
        for group in self.param_groups:  # a scheduler may have changed lr since the last step
            if group["lr"] is not None and not math.isfinite(group["lr"]):
                raise ValueError(f"lr must be a finite number, got {group['lr']!r}")
        for param, _ in work:
            self.check_gradient(param)
        for param, group in work:
            self.update(param, param.grad, self.state[param], group)
        return loss

    def restore_saved_tensors(self, state_dict: dict) -> None:
        """Put copies of the saved state tensors in the place of the ones torch has cast.

        `torch.optim.Optimizer.load_state_dict` casts every state to its parameter's dtype. States
        kept wider or narrower than the parameter on purpose call this after it.
        """
        saved_ids = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        params = chain.from_iterable(group["params"] for group in self.param_groups)
        for saved_id, param in zip(saved_ids, params, strict=True):
            for key, value in state_dict["state"].get(saved_id, {}).items():
                if isinstance(value, Tensor):
                    device = value.device if key == "step" else param.device
                    self.state[param][key] = value.to(device, copy=True)
