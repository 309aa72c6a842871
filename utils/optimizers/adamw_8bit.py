"""AdamW with both moments in 8 bits.

Source: Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization", Section 2: read the
moments back to 32 bits, take the ordinary step, quantize them again.
"""

import torch
from torch import Tensor

from .adamw import adamw_step_, check_adam_hyperparameters
from .base import CheckedOptimizer, all_finite, new_step_counter
from .quantization import (
    BLOCK_SIZE,
    dequantize_blockwise,
    num_blocks,
    quantize_blockwise,
    shared_codebook,
)

MIN_8BIT_SIZE = 4096  # smaller tensors keep their moments in 32 bits, as in bitsandbytes


def adamw_8bit_step_(
    param: Tensor,
    grad: Tensor,
    first: tuple[Tensor, Tensor],
    second: tuple[Tensor, Tensor],
    step: int,
    **options,
) -> None:
    """Change `param`, `first` and `second` in place by one AdamW step on quantized moments.

    `first` and `second` are (codes, absmax): uint8 in the shape of `param`, float32 of shape
    (blocks,). The first moment has codes of both signs; the second is never negative and spends all
    its codes on one sign. The update uses the new moments before they are rounded. `options` are
    lr, betas, eps and weight_decay of `adamw_step_`.
    """
    signed = shared_codebook(True, param.device)
    unsigned = shared_codebook(False, param.device)
    first_moment = dequantize_blockwise(*first, signed)
    second_moment = dequantize_blockwise(*second, unsigned)
    weights = param if param.dtype == torch.float32 else param.float()
    adamw_step_(weights, grad.float(), first_moment, second_moment, step, **options)
    if weights is not param:
        param.copy_(weights)
    for (codes, absmax), moment, codebook in (
        (first, first_moment, signed),
        (second, second_moment, unsigned),
    ):
        new_codes, new_absmax = quantize_blockwise(moment, codebook)
        codes.copy_(new_codes)
        absmax.copy_(new_absmax)
    # A second moment far below its block's largest would become 0, and the next step, divided by
    # hardly more than the next gradient, a leap. It takes the smallest code above 0 instead.
    codes = second[0]
    torch.maximum(codes, second_moment > 0, out=codes)


class AdamW8bit(CheckedOptimizer):
    """AdamW whose moments take one byte a number and one float32 scale a block of 256.

    State of a parameter with at least `min_8bit_size` elements: `state1` and `state2` (uint8 codes
    of the first and second moment, in its shape), `absmax1` and `absmax2` (float32, a scale a
    block), `step`. For n elements 2 * (n + 4 * ceil(n / 256)) + 4 bytes. Smaller parameters keep
    `state1` and `state2` in float32: 8n + 4 bytes. The two codebooks, 2,048 bytes, are shared by
    all optimizers of the process and are no part of the state.

    Names and layout follow `bitsandbytes.optim.AdamW8bit`, with its default weight decay of 0.01.
    A moment that is exactly zero stays zero, so a weight without gradients stays where it is.
    Raises: ValueError for a hyperparameter out of range, and, before anything has changed, for a
    gradient with NaN or infinity; TypeError for sparse gradients and complex or integer parameters.
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        *,
        min_8bit_size=MIN_8BIT_SIZE,
    ):
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "min_8bit_size": min_8bit_size})

    def check_group(self, group: dict) -> None:
        check_adam_hyperparameters(group)
        size = group["min_8bit_size"]
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise ValueError(f"min_8bit_size must be a whole number of at least 0, got {size!r}")

    def check_gradient(self, param: Tensor) -> None:
        super().check_gradient(param)
        if param.is_complex():
            raise TypeError(f"AdamW8bit needs real parameters, got {param.dtype}")
        if not all_finite([param.grad]):
            raise ValueError(
                f"a gradient of shape {tuple(param.shape)} holds NaN or infinity: it would be lost "
                "with its whole block. Skip the step, or clip before the loss overflows"
            )

    def update(self, param: Tensor, grad: Tensor, state: dict, group: dict) -> None:
        if not state:
            state.update(_new_state(param, group["min_8bit_size"]))
        state["step"] += 1
        step = state["step"].item()
        options = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
        if "absmax1" in state:
            first = state["state1"], state["absmax1"]
            second = state["state2"], state["absmax2"]
            adamw_8bit_step_(param, grad, first, second, step, **options)
            return
        weights = param if param.dtype == torch.float32 else param.float()
        adamw_step_(weights, grad.float(), state["state1"], state["state2"], step, **options)
        if weights is not param:
            param.copy_(weights)

    def load_state_dict(self, state_dict: dict) -> None:
        """Load a saved state as torch does, but keep codes as bytes and scales as float32."""
        super().load_state_dict(state_dict)
        self.restore_saved_tensors(state_dict)


def _new_state(param: Tensor, min_8bit_size: int) -> dict[str, Tensor]:
    """Return the state of zero moments: codes of 0 and scales of 0, or float32 zeros."""
    if param.numel() < max(min_8bit_size, 1):
        moments = (torch.zeros_like(param, dtype=torch.float32) for _ in range(2))
        return dict(zip(("state1", "state2"), moments, strict=True), step=new_step_counter())
    blocks = num_blocks(param.numel(), BLOCK_SIZE)
    state = {"step": new_step_counter()}
    for index, signed in (("1", True), ("2", False)):
        zero = int((shared_codebook(signed, param.device) == 0).nonzero())
        state[f"state{index}"] = torch.full_like(param, zero, dtype=torch.uint8)
        state[f"absmax{index}"] = torch.zeros(blocks, device=param.device)
    return state
