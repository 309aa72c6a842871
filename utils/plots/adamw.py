"""The pictures of lesson 01: one AdamW step, moving averages, first steps, two kinds of decay."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from utils.plots.base import COLORS, describe, new_figure
from utils.plots.flow import BOX_HEIGHT, GHOST, Box, arrow, flow

STAGES = (
    "forward",
    "gradient",
    "first moment",
    "second moment",
    "bias correction",
    "update",
    "weight decay",
)
_FORWARD, _GRADIENT, _FIRST, _SECOND, _CORRECTION, _UPDATE, _DECAY = STAGES
_MOVE = "update\n" + r"$-\mathrm{lr}\,\hat m\,/\,(\sqrt{\hat v}+\epsilon)$"
_SHRINK = "weight decay\n" + r"$(1-\mathrm{lr}\,\lambda)\,w$"
_M_HAT, _V_HAT = r"$\hat m$", r"$\hat v$"
_BOXES = {
    "weight": Box(_FORWARD, 0, 2, "weight", "$w$", "parameter", "weight"),
    "loss": Box(_FORWARD, 1, 2, "forward pass", "loss", "parameter", "loss"),
    "gradient": Box(_GRADIENT, 2, 2, "gradient", "$g$", "gradient", "gradient"),
    "first": Box(_FIRST, 3, 3, "EMA of $g$", "$m$", "first", "m (EMA of g)", kept=True),
    "second": Box(
        _SECOND, 3, 1, "EMA of $g^2$", "$v$", "second", "v (EMA of g squared)", kept=True
    ),
    "first_corrected": Box(_CORRECTION, 4, 3, "corrected", _M_HAT, "first", "corrected m"),
    "second_corrected": Box(_CORRECTION, 4, 1, "corrected", _V_HAT, "second", "corrected v"),
    "move": Box(_UPDATE, 5, 2, _MOVE, "", "line", "update", signed=True),
    "decayed": Box(_DECAY, 3, 0, _SHRINK, "", "row", "decayed weight"),
    "new_weight": Box(_UPDATE, 6, 2, "new weight", "$w$", "parameter", "new weight"),
}
_ARROWS = (
    ("weight", "loss"),
    ("loss", "gradient"),
    ("gradient", "first"),
    ("gradient", "second"),
    ("first", "first_corrected"),
    ("second", "second_corrected"),
    ("first_corrected", "move"),
    ("second_corrected", "move"),
    ("move", "new_weight"),
)


def adamw_steps(upto: str, values: Mapping[str, float] | None = None) -> Figure:
    """Return the picture of one AdamW step, drawn up to the stage `upto`; the rest is faint.

    `upto` is one of `STAGES`. `values` gives numbers to write into the boxes: weight, loss,
    gradient, first, second, first_corrected, second_corrected, move, decayed, new_weight. A box
    without one shows its formula alone. Thick borders mark what the optimizer keeps.
    Raises ValueError for an unknown stage or an unknown name in `values`.
    """
    figure, axis, reached = flow(_BOXES, _ARROWS, STAGES, upto, dict(values or {}), (9.4, 3.6))
    # From the old weight to the new one, below the averages: decay never passes through them.
    color = COLORS["ink"] if "new_weight" in reached else GHOST
    if "decayed" in reached:
        color = COLORS["row"]
    (left, lane), (right, _) = _BOXES["weight"].middle, _BOXES["new_weight"].middle
    edge, floor = lane - BOX_HEIGHT / 2, _BOXES["decayed"].middle[1]
    axis.plot(
        [left, left, right], [edge, floor, floor], color=color, lw=1.0, zorder=1, gid="way round"
    )
    arrow(axis, (right, floor), (right, edge), color)
    return figure


def ema_shares(shares: Mapping[float, Sequence[float]]) -> Figure:
    """Return the picture of how much of an EMA each value of the past has, one panel a beta.

    `shares` maps a beta to the share of the newest value (age 0), of the one before it (age 1) and
    so on. The dark bars are the newest 1 / (1 - beta) values, the average's time scale.
    Raises ValueError if a time scale is longer than its list of shares.
    """
    figure, axes = new_figure(7.5, 1.9 * len(shares), rows=len(shares), sharex=True, squeeze=False)
    words = []
    for axis, (beta, bars) in zip(axes[:, 0], shares.items(), strict=True):
        scale = round(1 / (1 - beta))
        if scale > len(bars):
            raise ValueError(f"beta {beta} looks back {scale} values; {len(bars)} shares given")
        colors = [COLORS["line"]] * scale + ["#BBD3E6"] * (len(bars) - scale)
        axis.bar(range(len(bars)), bars, color=colors, width=0.8)
        recent = sum(bars[:scale])
        note = f"beta = {beta:g}: the newest {scale} values (dark)\nhold {recent:.2f} of the whole"
        axis.text(len(bars) - 0.5, 0.75 * max(bars), note, ha="right")
        axis.set(ylabel="share", xlim=(-0.7, len(bars) - 0.3))
        words.append(
            f"with beta {beta:g} the newest value has a share of {bars[0]:.3g}, each older one "
            f"{beta:g} times the share of the next, and the newest {scale} together {recent:.2f}"
        )
    axes[-1, 0].set_xlabel("age of a value, in steps (0 is the newest)")
    return describe(figure, f"{'; '.join(words)}.")


def zero_start(
    values: Sequence[float], raw: Sequence[float], corrected: Sequence[float], mean: float
) -> Figure:
    """Return the picture of an EMA that starts at zero, raw and bias-corrected, and the true mean.

    All three sequences have one entry a step.
    """
    if not len(values) == len(raw) == len(corrected):
        raise ValueError(f"lengths differ: {len(values)}, {len(raw)}, {len(corrected)}")
    figure, axis = new_figure(7.5, 3.4)
    steps = range(1, len(values) + 1)
    axis.axhline(mean, color=COLORS["ink"], lw=1, ls=(0, (4, 3)), label="true mean")
    axis.plot(steps, values, "o", ms=3.5, color=COLORS["gradient"], label="values", zorder=1)
    axis.plot(steps, raw, "-s", ms=3, color=COLORS["row"], label="raw EMA, started at 0")
    axis.plot(steps, corrected, "-^", ms=3.5, color=COLORS["line"], label="bias-corrected EMA")
    axis.set(xlabel="step", xlim=(0, len(values) + 1), ylim=(0, None))
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, fontsize=9)
    early = min(5, len(values)) - 1
    return describe(
        figure,
        f"true mean {mean:g}. After step 1 the raw EMA is {raw[0]:.3g} and the corrected one "
        f"{corrected[0]:.3g}; after step {early + 1}, {raw[early]:.3g} and {corrected[early]:.3g}; "
        f"after step {len(values)}, {raw[-1]:.3g} and {corrected[-1]:.3g}.",
    )


def first_steps(
    gradients: Sequence[float], moves: Sequence[float], lr: float, eps: float
) -> Figure:
    """Return the picture of the size of AdamW's first step against the size of the gradient.

    `moves` are measured step sizes, one a gradient; the line is lr * |g| / (|g| + eps), and beside
    it lr * |g|, the step of plain gradient descent.
    """
    if len(gradients) != len(moves):
        raise ValueError(f"{len(gradients)} gradients and {len(moves)} moves")
    figure, axis = new_figure(7.5, 3.4)
    grid = [10 ** (power / 8) for power in range(-88, 33)]
    axis.plot(grid, [lr * g for g in grid], color="#999999", lw=1.2, ls=(0, (4, 3)))
    axis.plot(grid, [lr * g / (g + eps) for g in grid], color=COLORS["line"], lw=1.8)
    axis.plot(gradients, moves, "o", ms=7, color=COLORS["row"], zorder=3)
    axis.axvline(eps, color=COLORS["ink"], lw=0.8, ls=(0, (1, 3)))
    axis.text(eps * 1.4, lr * 2e-3, f"size of gradient = eps = {eps:g}", fontsize=9)
    axis.text(grid[-1] * 0.6, lr * 1.6, "AdamW: lr", ha="right", color=COLORS["line"], fontsize=9)
    axis.text(2e-3, lr * 1e-4, "gradient descent: lr x gradient", color="#777777", fontsize=9)
    axis.set(xscale="log", yscale="log", ylim=(lr * 1e-5, lr * 8), xlim=(grid[0], grid[-1]))
    axis.set(xlabel="size of the gradient", ylabel="size of the first step")
    points = "; ".join(f"{g:g} gives {move:.4g}" for g, move in zip(gradients, moves, strict=True))
    return describe(
        figure,
        f"first step against gradient, lr {lr:g}: {points}. AdamW's line is flat down to gradients "
        f"near eps {eps:g}; gradient descent's rises with the gradient.",
    )


def decay_paths(paths: Mapping[str, Mapping[float, Sequence[float]]], lr: float) -> Figure:
    """Return the picture of weights under weight decay, one panel an optimizer.

    `paths` maps an optimizer's name to {gradient size: the weight after 0, 1, 2 ... steps}, with
    at most three sizes. `lr` is named in the description only.
    """
    figure, axes = new_figure(8.4, 3.4, columns=len(paths), sharey=True, squeeze=False)
    colors = (COLORS["line"], COLORS["row"], COLORS["second"])
    dashes = ("-", (0, (5, 3)), (0, (1, 1.5)))
    words = []
    for axis, (name, weights) in zip(axes[0], paths.items(), strict=True):
        for number, (size, path) in enumerate(weights.items()):
            style = {"color": colors[number], "ls": dashes[number], "lw": 2.2}
            axis.plot(range(len(path)), path, label=f"{size:g}", **style)
        axis.set(title=name, xlabel="step", ylim=(0, None))
        ends = {size: path[-1] for size, path in weights.items()}
        if len(ends) > 1 and max(ends.values()) - min(ends.values()) < 0.01:
            half = len(path) // 2
            note = f"{len(ends)} lines,\none on the other"
            axis.annotate(
                note, (half, path[half]), xytext=(12, 14), textcoords="offset points", fontsize=9
            )
        listed = ", ".join(f"{end:.2f} (gradients of size {size:g})" for size, end in ends.items())
        words.append(f"{name} ends at {listed}")
    axes[0, 0].set_ylabel("weight")
    axes[0, -1].legend(title="size of the gradients", loc="lower left", frameon=False, fontsize=9)
    return describe(figure, f"after {len(path) - 1} steps with lr {lr:g}, {'; '.join(words)}.")
