"""Optimizers written from their papers in plain PyTorch: AdamW, Adam with L2."""

from .adamw import (
    AdamL2,
    AdamW,
    adam_l2_step,
    adam_l2_step_,
    adamw_step,
    adamw_step_,
    bias_correction,
    ema,
    ema_sequence,
)
from .base import all_finite

__all__ = [
    "AdamL2",
    "AdamW",
    "adam_l2_step",
    "adam_l2_step_",
    "adamw_step",
    "adamw_step_",
    "all_finite",
    "bias_correction",
    "ema",
    "ema_sequence",
]
