"""The pictures of lessons 05 and 06: factoring a matrix, Adafactor's step, state side by side."""

from collections.abc import Mapping, Sequence

from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from torch import Tensor

from utils.memory import MIB, format_bytes
from utils.plots.base import COLORS, describe, new_figure
from utils.plots.flow import Box, flow

STAGES = ("forward", "gradient", "row and column", "estimate", "update", "clipping")
_FORWARD, _GRADIENT, _STATISTICS, _ESTIMATE, _UPDATE, _CLIPPING = STAGES
_BOXES = {
    "weight": Box(_FORWARD, 0, 1, "weights", "$W$", "parameter", "weights"),
    "loss": Box(_FORWARD, 1, 1, "forward pass", "loss", "parameter", "loss"),
    "gradient": Box(_GRADIENT, 2, 1, "gradient", "$G$", "gradient", "gradient"),
    "row": Box(
        _STATISTICS, 3, 2, "EMA of row\nmeans of $G^2$", "", "row", "row statistics", kept=True
    ),
    "column": Box(
        _STATISTICS,
        3,
        0,
        "EMA of column\nmeans of $G^2$",
        "",
        "column",
        "column statistics",
        kept=True,
    ),
    "estimate": Box(_ESTIMATE, 4, 1, "estimate of $V$", "", "second", "estimated second moment"),
    "update": Box(_UPDATE, 5, 1, "update\n" + r"$U=G\,/\,\sqrt{V}$", "", "line", "update"),
    "clipped": Box(_CLIPPING, 6, 1, "clipped to\nRMS at most 1", "", "line", "clipped update"),
    "new_weight": Box(_CLIPPING, 7, 1, "new weights", "$W$", "parameter", "new weights"),
}
_ARROWS = (
    ("weight", "loss"),
    ("loss", "gradient"),
    ("gradient", "row"),
    ("gradient", "column"),
    ("row", "estimate"),
    ("column", "estimate"),
    ("estimate", "update"),
    ("update", "clipped"),
    ("clipped", "new_weight"),
)


def adafactor_steps(upto: str) -> Figure:
    """Return the picture of one Adafactor step, drawn up to the stage `upto`; the rest is faint.

    `upto` is one of `STAGES`. Thick borders mark what the optimizer keeps.
    Raises ValueError for an unknown stage.
    """
    figure, _, _ = flow(_BOXES, _ARROWS, STAGES, upto, {}, (10.4, 3.0))
    return figure


def factoring(matrix: Tensor, estimate: Tensor) -> Figure:
    """Return the picture of a matrix, its row and column sums, and the matrix estimated from them.

    `matrix` and `estimate` have one shape (n, m) and no negative numbers. Both share one
    logarithmic scale of colours. Raises ValueError for other shapes or signs.
    """
    if matrix.ndim != 2 or matrix.shape != estimate.shape or min(matrix.shape) < 1:
        raise ValueError(
            f"two matrices of one shape are needed, got {tuple(matrix.shape)} and "
            f"{tuple(estimate.shape)}"
        )
    if (matrix < 0).any() or (estimate < 0).any() or not (matrix > 0).any():
        raise ValueError("the matrices must have no negative numbers, and some above zero")
    rows, columns = matrix.shape
    figure, axes = new_figure(
        9.2, 4.2, columns=3, width_ratios=(1, 0.07, 1), rows=2, height_ratios=(1, 0.08)
    )
    smallest = matrix[matrix > 0].quantile(0.01).item()
    norm = LogNorm(smallest, matrix.max().item())
    row, column = matrix.sum(1, keepdim=True), matrix.sum(0, keepdim=True)
    drawn = {
        (0, 0): (matrix, f"second moment, {rows} x {columns} (bright: large)", norm),
        (0, 1): (row, "row\nsums", None),
        (1, 0): (column, None, None),
        (0, 2): (estimate, "row sum x column sum / total", norm),
    }
    for place, axis in [((i, j), axes[i][j]) for i in range(2) for j in range(3)]:
        axis.spines[:].set_visible(False)
        axis.set(xticks=[], yticks=[])
        if place not in drawn:
            axis.axis("off")
            continue
        values, title, scale = drawn[place]
        scale = scale or LogNorm(values[values > 0].min().item(), values.max().item())
        axis.imshow(values.clamp(min=scale.vmin), aspect="auto", norm=scale, cmap="cividis")
        if title:
            axis.set_title(title, fontsize=10)
    axes[1][0].set_xlabel("column sums")
    return describe(
        figure,
        f"A matrix with {rows} rows and {columns} columns, its {rows} row sums beside it, its "
        f"{columns} column sums below it, and the matrix estimated from them. Bright rows and "
        f"columns are bright in both. {rows * columns:,} numbers against {rows + columns:,}.",
    )


def step_ratios(ratios: Tensor, percent_within_2: str) -> Figure:
    """Return the histogram of step size ratios, on a scale of factors of two.

    `ratios` holds, for each weight, the step with the estimate divided by the step with the true
    second moment, all above 0. `percent_within_2` says how many lie within a factor of 2, as text,
    so that the lesson decides on its digits. Raises ValueError for ratios of 0 or below.
    """
    if ratios.numel() == 0 or not (ratios > 0).all():
        raise ValueError("ratios must be above 0, and there must be some")
    figure, axis = new_figure(7.6, 3.2)
    powers = ratios.detach().flatten().log2()
    axis.axvspan(-1, 1, color=COLORS["first"], alpha=0.25, lw=0)
    axis.hist(powers.clamp(-4, 4).tolist(), bins=64, range=(-4, 4), color=COLORS["line"])
    axis.axvline(0, color=COLORS["ink"], lw=1)
    axis.set_xticks(range(-4, 5), ["1/16", "1/8", "1/4", "1/2", "1", "2", "4", "8", "16"])
    axis.set(xlabel="step with the estimate / step with the true second moment", ylabel="weights")
    axis.text(1.1, 0.9 * axis.get_ylim()[1], f"{percent_within_2} within\na factor of 2", va="top")
    return describe(
        figure,
        f"Ratios of {powers.numel():,} steps. {percent_within_2} lie within a factor of 2; the "
        "peak is near 1.",
    )


def memory_by_size(widths: Sequence[int]) -> Figure:
    """Return the curves of a state of n x n numbers and of n + n numbers, in FP32 bytes.

    Both axes are logarithmic. Raises ValueError for fewer than two widths or one below 1.
    """
    if len(widths) < 2 or min(widths) < 1:
        raise ValueError(f"need two widths of at least 1, got {list(widths)}")
    figure, axis = new_figure(7.6, 3.4)
    full = [4 * n * n for n in widths]
    factored = [4 * (n + n) for n in widths]
    for sizes, name, color, marker in (
        (full, "the whole matrix: n x n", COLORS["second"], "o"),
        (factored, "rows and columns: n + n", COLORS["row"], "s"),
    ):
        axis.plot(widths, sizes, color=color, marker=marker)
        axis.annotate(
            f"{name}\n{format_bytes(sizes[-1])}",
            (widths[-1], sizes[-1]),
            xytext=(10, 0),
            textcoords="offset points",
            va="center",
            color=color,
        )
    axis.set(xscale="log", yscale="log", xlabel="n (log scale)", ylabel="bytes (log scale)")
    axis.set_xlim(widths[0] * 0.8, widths[-1] * (widths[-1] / widths[0]) ** 0.55)
    axis.set_xticks(list(widths), [f"{n:,}" for n in widths])
    axis.minorticks_off()
    words = "; ".join(
        f"n = {n:,}: {format_bytes(a)} against {format_bytes(b)}"
        for n, a, b in zip(widths, full, factored, strict=True)
    )
    return describe(figure, f"Bytes of one second moment. {words}.")


def decays(steps: Sequence[int], adafactor: Sequence[float], adam: float) -> Figure:
    """Return the picture of 1 - beta2, the share of the newest square, by step.

    `adafactor` holds beta2 for each of `steps`; `adam` is the constant one. Both axes are
    logarithmic. Raises ValueError for different lengths.
    """
    if len(steps) != len(adafactor) or not steps:
        raise ValueError(f"one beta2 a step is needed, got {len(adafactor)} for {len(steps)}")
    figure, axis = new_figure(7.6, 3.2)
    axis.plot(steps, [1 - beta2 for beta2 in adafactor], color=COLORS["row"], marker="s", ms=4)
    axis.axhline(1 - adam, color=COLORS["second"], ls="--")
    axis.text(steps[0], 1.15 * (1 - adam), f"Adam: {1 - adam:g} at every step", va="bottom")
    middle = len(steps) // 3
    axis.annotate(
        "Adafactor: step$^{-0.8}$",
        (steps[middle], 1 - adafactor[middle]),
        xytext=(10, 6),
        textcoords="offset points",
    )
    axis.set(xscale="log", yscale="log", xlabel="step (log scale)")
    axis.set_ylabel("share of the\nnewest square")
    ends = f"{1 - adafactor[0]:.2g} at step {steps[0]} to {1 - adafactor[-1]:.2g} at {steps[-1]:,}"
    return describe(
        figure,
        f"The share of the newest squared gradient falls from {ends} with Adafactor; with Adam it "
        f"is {1 - adam:g} throughout.",
    )


def states_side_by_side(states: Mapping[str, Mapping[str, int]]) -> Figure:
    """Return the picture of optimizers' states: one stacked bar each, in MiB, linear and drawn true.

    `states` maps an optimizer to its state names, and these to bytes. A bar too thin to see keeps
    its label. Raises ValueError for no optimizer or an empty one.
    """
    if not states or not all(sum(state.values()) for state in states.values()):
        raise ValueError("every optimizer needs a state of at least 1 byte")
    figure, axis = new_figure(9.0, 1.1 + 0.75 * len(states))
    palette = [COLORS[c] for c in ("first", "second", "row", "column", "gradient", "step", "line")]
    names = list(dict.fromkeys(name for state in states.values() for name in state))
    colors = dict(zip(names, palette * (len(names) // len(palette) + 1), strict=False))
    longest = max(sum(state.values()) for state in states.values()) / MIB
    words, labelled = [], set()
    for place, (optimizer, state) in enumerate(states.items()):
        left = 0.0
        for name, size in state.items():
            wide = size / MIB > 0.02 * longest
            label = name if wide and name not in labelled else None
            labelled |= {name} if wide else set()
            axis.barh(place, size / MIB, 0.6, left, color=colors[name], label=label)
            left += size / MIB
        total = sum(state.values())
        axis.text(left + 0.01 * longest, place, f"{format_bytes(total)}", va="center")
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in state.items())
        words.append(f"{optimizer}: {format_bytes(total)} ({parts})")
    axis.set_yticks(range(len(states)), list(states))
    axis.set(xlim=(0, 1.25 * longest), ylim=(len(states) - 0.5, -0.5), xlabel="MiB")
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    return describe(figure, f"{'; '.join(words)}.")
