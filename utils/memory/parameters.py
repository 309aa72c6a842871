"""Parameters counted, and what training them with AdamW takes."""

from dataclasses import dataclass

import torch
from torch.nn.parameter import is_lazy

from utils.require import whole_number


@dataclass(frozen=True)
class ParameterCount:
    """How many numbers a model holds; a tensor with several names (tied weights) counts once."""

    total: int
    trainable: int
    frozen: int
    tensors: int
    trainable_tensors: int
    tied: int  # names beyond the first that lead to a tensor already counted


@dataclass(frozen=True)
class TrainingBill:
    """Bytes that stay allocated while AdamW trains a model."""

    weights: int
    gradients: int
    first_moment: int
    second_moment: int
    steps: int
    parameters: int

    @property
    def optimizer(self) -> int:
        """Bytes of the optimizer's state: both moments and the step counters."""
        return self.first_moment + self.second_moment + self.steps

    @property
    def total(self) -> int:
        """Bytes of weights, gradients and optimizer state together."""
        return self.weights + self.gradients + self.optimizer

    @property
    def bytes_per_parameter(self) -> float:
        """Total bytes over all parameters, frozen ones included."""
        return self.total / self.parameters


def model_parameters(model) -> list[torch.nn.Parameter]:
    """Return the model's parameters, each tensor once.

    Raises TypeError for anything but a `torch.nn.Module`, ValueError for a lazy module whose
    shapes are not known yet.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")
    parameters = list(model.parameters())
    if any(is_lazy(p) for p in parameters):
        raise ValueError(
            "the model has lazy parameters without a shape: run one batch through it first"
        )
    return parameters


def count_parameters(model) -> ParameterCount:
    """Return the number of parameters: total, trainable, frozen, and the number of tensors.

    Works on any device, the meta device included: nothing is allocated. A parameter is one number;
    a tensor of shape (3, 5) holds 15. Buffers are no parameters. Raises as `model_parameters`
    does.
    """
    parameters = model_parameters(model)
    trainable = [p for p in parameters if p.requires_grad]
    total = sum(p.numel() for p in parameters)
    num_trainable = sum(p.numel() for p in trainable)
    names = sum(1 for _ in model.named_parameters(remove_duplicate=False))
    return ParameterCount(
        total=total,
        trainable=num_trainable,
        frozen=total - num_trainable,
        tensors=len(parameters),
        trainable_tensors=len(trainable),
        tied=names - len(parameters),
    )


def estimate_adamw_bytes(num_parameters: int, bytes_per_value: int = 4, states: int = 2) -> int:
    """Return AdamW's state in bytes by the rule of thumb: num_parameters * states *
    bytes_per_value.

    In FP32 that is 8 bytes a parameter: 4 for each of the two moments. The rule leaves out the
    step counters (4 bytes a tensor), so it is short by 416 bytes for a model of 104 tensors.
    `states` is 3 with `amsgrad`; `bytes_per_value` is 2 for BF16 or FP16 weights, because the
    moments take the weights' dtype. Only trainable parameters count: pass
    `count_parameters(model).trainable`. Raises ValueError unless all are whole numbers of at
    least 0.
    """
    for name, value in (
        ("num_parameters", num_parameters),
        ("bytes_per_value", bytes_per_value),
        ("states", states),
    ):
        whole_number(name, value, 0)
    return num_parameters * states * bytes_per_value


def training_bill(model) -> TrainingBill:
    """Return the bytes that training `model` with AdamW keeps allocated, item by item.

    Weights count for every parameter. A gradient, two moments (all in the weight's dtype) and a
    step counter (a scalar of the default dtype, 4 bytes for float32) count for every trainable
    one: 4 + 4 + 4 + 4 = 16 bytes a parameter in FP32. The bill assumes that every trainable
    parameter receives a gradient. Activations, buffers and a step's temporary memory are not on
    it. Nothing is allocated; the model may be on the meta device. Raises as `model_parameters`
    does, and ValueError for a model without parameters.
    """
    parameters = model_parameters(model)
    if not parameters:
        raise ValueError(f"{type(model).__name__} has no parameters: there is no bill")
    trainable = [p for p in parameters if p.requires_grad]
    moment = sum(p.numel() * p.element_size() for p in trainable)
    return TrainingBill(
        weights=sum(p.numel() * p.element_size() for p in parameters),
        gradients=moment,
        first_moment=moment,
        second_moment=moment,
        steps=len(trainable) * step_counter_bytes(),
        parameters=sum(p.numel() for p in parameters),
    )


def step_counter_bytes(fused: bool = False) -> int:
    """Return the bytes of one of PyTorch's `step` tensors: 8 if the default dtype is float64, else
    4.

    Fused optimizers always keep it in float32. Source: torch/optim/optimizer.py,
    `_get_scalar_dtype`.
    """
    return 8 if torch.get_default_dtype() == torch.float64 and not fused else 4
