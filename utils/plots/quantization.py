"""The pictures of lesson 07: sizes of moments, codes, their errors, and one scale against many."""

from collections.abc import Mapping

import torch
from matplotlib.figure import Figure
from torch import Tensor

from utils.optimizers import nearest_code
from utils.plots.base import COLORS, describe, new_figure

_STYLES = (
    (COLORS["row"], "-", "s"),
    (COLORS["line"], "--", "o"),
    (COLORS["second"], ":", "^"),
)


def magnitudes(moments: Mapping[str, Tensor], lowest: int = -8) -> Figure:
    """Return the histograms of |x| / max |x|, one below the other, on a scale of powers of ten.

    `moments` maps a name to a tensor of any shape. Numbers below 10**`lowest` of the largest are
    counted in the first bar, zeros not at all. Raises ValueError for no tensor or one of zeros.
    """
    if not moments or any(not tensor.any() for tensor in moments.values()):
        raise ValueError("every tensor needs a number other than 0, and there must be one")
    figure, axes = new_figure(
        8.0, 1.0 + 1.3 * len(moments), rows=len(moments), sharex=True, squeeze=False
    )
    words = []
    colors = (COLORS["first"], COLORS["second"], COLORS["row"])
    for (name, tensor), axis, color in zip(moments.items(), axes.flat, colors, strict=False):
        sizes = tensor.detach().abs().flatten()
        powers = (sizes[sizes > 0] / sizes.max()).log10()
        counts = torch.histc(powers.clamp(min=lowest), bins=-6 * lowest, min=lowest, max=0)
        edges = torch.linspace(lowest, 0, len(counts) + 1)
        axis.bar(edges[:-1], counts, width=edges.diff(), align="edge", color=color)
        axis.set_ylabel("numbers")
        axis.set_title(name, loc="left", fontsize=10)
        within = (powers > -4).float().mean().item()
        words.append(f"{name}: {within:.0%} lie within four powers of ten of the largest")
    ticks = range(lowest, 1, 2)
    axes.flat[-1].set_xticks(
        list(ticks), [f"$10^{{{power}}}$" if power else "1" for power in ticks]
    )
    axes.flat[-1].set_xlabel("size, divided by the largest (log scale)")
    return describe(figure, f"Sizes of the numbers. {'; '.join(words)}.")


def codes(codebooks: Mapping[str, Tensor]) -> Figure:
    """Return the picture of the codes above 0 of each codebook, as ticks on a log scale.

    Raises ValueError for a codebook without a code above 0.
    """
    if not codebooks or any(not (book > 0).any() for book in codebooks.values()):
        raise ValueError("every codebook needs a code above 0, and there must be one")
    figure, axis = new_figure(8.4, 1.0 + 0.55 * len(codebooks))
    words = []
    for place, ((name, book), style) in enumerate(zip(codebooks.items(), _STYLES, strict=False)):
        above = book[book > 0]
        axis.vlines(above, place - 0.32, place + 0.32, color=style[0], lw=0.8)
        words.append(f"{name}: {len(above)} codes above 0, from {above.min().item():.2g} to 1")
    axis.set_yticks(range(len(codebooks)), list(codebooks))
    axis.set(xscale="log", xlim=(1e-7, 1.2), ylim=(len(codebooks) - 0.4, -0.6))
    axis.set_xlabel("code (log scale); 1 stands for the largest number")
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    return describe(figure, f"{'; '.join(words)}.")


def error_by_size(codebooks: Mapping[str, Tensor], lowest: int = -7) -> Figure:
    """Return the curves of the relative error that each codebook makes, by the size of a number.

    The error is the mean of |nearest code - x| / x over 200 numbers x in each sixth of a power of
    ten, for x from 10**`lowest` to 1. An error of 1 means that the number became 0.
    """
    figure, axis = new_figure(7.8, 3.4)
    words = []
    for (name, book), style in zip(codebooks.items(), _STYLES, strict=False):
        numbers = torch.logspace(lowest, 0, -6 * lowest * 200)
        error = (book[nearest_code(numbers, book).int()] - numbers).abs() / numbers
        color, line, marker = style
        places = numbers.view(-1, 200).log10().mean(dim=1)
        means = error.view(-1, 200).mean(dim=1)
        axis.plot(10**places, means, line, color=color, marker=marker, ms=4, label=name)
        at = {power: means[(places - power).abs().argmin()].item() for power in (-1, -3, -5)}
        listed = ", ".join(f"{error:.1%} at 1e{power}" for power, error in at.items())
        words.append(f"{name}: {listed}")
    axis.axhline(1, color=COLORS["ink"], lw=0.8)
    axis.text(10.0**lowest, 1.3, "the number becomes 0", fontsize=9)
    axis.set(xscale="log", yscale="log", ylim=(None, 3))
    axis.set(xlabel="size of a number, divided by the scale (log scale)")
    axis.set_ylabel("mean relative error\n(log scale)")
    axis.legend(frameon=False, loc="lower left")
    return describe(figure, f"Mean relative error. {'; '.join(words)}.")


def error_by_block(errors: Mapping[str, Tensor], marked: int) -> Figure:
    """Return the picture of the relative error in each block, for several ways to scale.

    `errors` maps a name to one error a block, shape (blocks,), all above 0; `marked` is the block
    with the outlier. Raises ValueError for different shapes or an error of 0 or below.
    """
    sizes = {tuple(error.shape) for error in errors.values()}
    if (
        len(sizes) != 1
        or len(next(iter(sizes))) != 1
        or any((e <= 0).any() for e in errors.values())
    ):
        raise ValueError(f"need one error above 0 for each block, got shapes {sorted(sizes)}")
    blocks = len(next(iter(errors.values())))
    if not 0 <= marked < blocks:
        raise ValueError(f"marked must be one of {blocks} blocks, got {marked}")
    figure, axis = new_figure(8.2, 3.3)
    axis.axvspan(marked - 0.5, marked + 0.5, color=COLORS["step"], alpha=0.6, lw=0)
    words = []
    for (name, error), (color, line, marker) in zip(errors.items(), _STYLES, strict=False):
        axis.plot(range(blocks), error, line, color=color, marker=marker, ms=4, label=name)
        others = torch.cat([error[:marked], error[marked + 1 :]]).median().item()
        words.append(
            f"{name}: {error[marked].item():.0%} in it, {others:.0%} in the median of the others"
        )
    axis.set(yscale="log", xlabel="block of 256 numbers", xlim=(-0.7, blocks - 0.3))
    axis.set_ylabel("median relative error\n(log scale)")
    low, high = axis.get_ylim()
    axis.set_ylim(low, high * 4)
    axis.text(marked + 0.7, high * 1.6, "block with the outlier", fontsize=9)
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(0.02, 0.36))
    return describe(figure, f"Block {marked} of {blocks} holds an outlier. {'; '.join(words)}.")
