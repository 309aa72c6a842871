"""Optimizers written from their papers in plain PyTorch: AdamW, Adam with L2, Adafactor."""

from .adafactor import (
    Adafactor,
    adafactor_step,
    adafactor_step_,
    parameter_scale,
    relative_step_size,
    root_mean_square,
    second_moment_decay,
    update_clipping,
)
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
from .factoring import factored_second_moment, new_statistics, row_col_update, row_col_update_

__all__ = [
    "Adafactor",
    "AdamL2",
    "AdamW",
    "adafactor_step",
    "adafactor_step_",
    "adam_l2_step",
    "adam_l2_step_",
    "adamw_step",
    "adamw_step_",
    "all_finite",
    "bias_correction",
    "ema",
    "ema_sequence",
    "factored_second_moment",
    "new_statistics",
    "parameter_scale",
    "relative_step_size",
    "root_mean_square",
    "row_col_update",
    "row_col_update_",
    "second_moment_decay",
    "update_clipping",
]
