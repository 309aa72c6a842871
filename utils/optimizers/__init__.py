"""Optimizers written from their papers in plain PyTorch: AdamW, Adafactor, 8-bit AdamW."""

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
from .adamw_8bit import AdamW8bit, adamw_8bit_step_
from .base import all_finite
from .factoring import factored_second_moment, new_statistics, row_col_update, row_col_update_
from .quantization import (
    blockwise_absmax,
    dequantize_blockwise,
    dynamic_codebook,
    linear_codebook,
    nearest_code,
    num_blocks,
    quantize_blockwise,
)

__all__ = [
    "Adafactor",
    "AdamL2",
    "AdamW",
    "AdamW8bit",
    "adafactor_step",
    "adafactor_step_",
    "adam_l2_step",
    "adam_l2_step_",
    "adamw_8bit_step_",
    "adamw_step",
    "adamw_step_",
    "all_finite",
    "bias_correction",
    "blockwise_absmax",
    "dequantize_blockwise",
    "dynamic_codebook",
    "ema",
    "ema_sequence",
    "factored_second_moment",
    "linear_codebook",
    "nearest_code",
    "new_statistics",
    "num_blocks",
    "parameter_scale",
    "quantize_blockwise",
    "relative_step_size",
    "root_mean_square",
    "row_col_update",
    "row_col_update_",
    "second_moment_decay",
    "update_clipping",
]
