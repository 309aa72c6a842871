"""Does it fit? Weights, gradients, optimizer state and an allowance for activations, in bytes."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import nn

from utils.memory.parameters import model_parameters
from utils.memory.trainer import estimate_trainer_state
from utils.require import whole_number


@dataclass(frozen=True)
class Plan:
    """Bytes that training a model needs at once."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    notes: tuple[str, ...] = field(default=(), compare=False)  # of the optimizer's estimate

    @property
    def total(self) -> int:
        """Bytes of all four together."""
        return self.weights + self.gradients + self.optimizer + self.activations


def plan_training(model: nn.Module, optim: str, activations: int = 0) -> Plan:
    """Return what training `model` with Trainer's optimizer `optim` needs, in bytes.

    Weights count for every parameter, gradients (in the weight's dtype) for the trainable ones, the
    optimizer's state as `estimate_trainer_state` gives it. `activations` is your allowance, for
    instance from `checkpointed_activations`. Nothing is allocated; the model may be on the meta
    device.
    Raises: ValueError for a negative allowance; otherwise as `estimate_trainer_state` does.
    """
    whole_number("activations", activations, 0)
    parameters = model_parameters(model)
    state = estimate_trainer_state(model, optim)
    return Plan(
        weights=sum(p.numel() * p.element_size() for p in parameters),
        gradients=sum(p.numel() * p.element_size() for p in parameters if p.requires_grad),
        optimizer=state.bytes,
        activations=activations,
        notes=state.notes,
    )


def checkpointed_activations(
    layers: int, hidden: int, vocabulary: int, tokens: int, bytes_per_value: int = 2
) -> int:
    """Return an allowance for the activations of a language model with gradient checkpointing.

    One hidden state is kept for each layer and token (layers * hidden * bytes_per_value), and the
    logits of every token with their gradient in FP32 (2 * vocabulary * 4). A lower bound: one layer
    is computed again at a time and needs room, too. `tokens` are those of a whole batch.
    Raises: ValueError for a number that is not whole or below 1.
    """
    given = {
        "layers": layers,
        "hidden": hidden,
        "vocabulary": vocabulary,
        "tokens": tokens,
        "bytes_per_value": bytes_per_value,
    }
    for name, value in given.items():
        whole_number(name, value)
    return tokens * (layers * hidden * bytes_per_value + 8 * vocabulary)


def add_lora(
    model: nn.Module, rank: int, targets: Iterable[str] = ("q_proj", "v_proj")
) -> nn.Module:
    """Freeze `model` and give each targeted `nn.Linear` the two trainable matrices of LoRA; return it.

    A layer (out, in) gets `lora_A` (rank, in) and `lora_B` (out, rank), in FP32, as peft adds them;
    targets are the last parts of module names, peft's default for Llama. This is the memory of
    LoRA, not its computation: the forward pass does not use the matrices.
    Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", Section 4.1.
    Raises: ValueError for a rank below 1, or if no linear layer has one of these names.
    """
    targets = tuple(targets)
    whole_number("rank", rank)
    layers = [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.rsplit(".", 1)[-1] in targets
    ]
    if not layers:
        raise ValueError(f"no linear layer of the model is named {' or '.join(targets)}")
    model.requires_grad_(False)
    for layer in layers:
        options = {"device": layer.weight.device, "dtype": torch.float32}
        layer.lora_A = nn.Parameter(torch.zeros(rank, layer.in_features, **options))
        layer.lora_B = nn.Parameter(torch.zeros(layer.out_features, rank, **options))
    return model
