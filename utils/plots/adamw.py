"""The pictures of lesson 01: one AdamW step, moving averages, first steps, two kinds of decay."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from utils.plots.base import COLORS, describe, new_figure

STAGES = (
    "forward",
    "gradient",
    "first moment",
    "second moment",
    "bias correction",
    "update",
    "weight decay",
)


class _Box(NamedTuple):
    stage: str
    column: int
    lane: int
    title: str
    formula: str
    color: str
    spoken: str


_BOXES = {
    "weight": _Box("forward", 0, 2, "weight", "$w$", "parameter", "weight"),
    "loss": _Box("forward", 1, 2, "forward pass", "loss", "parameter", "loss"),
    "gradient": _Box("gradient", 2, 2, "gradient", "$g$", "gradient", "gradient"),
    "first": _Box("first moment", 3, 3, "EMA of $g$", "$m$", "first", "EMA of g"),
    "second": _Box("second moment", 3, 1, "EMA of $g^2$", "$v$", "second", "EMA of g squared"),
    "first_corrected": _Box(
        "bias correction", 4, 3, "corrected", r"$\hat m$", "first", "corrected EMA of g"
    ),
    "second_corrected": _Box(
        "bias correction", 4, 1, "corrected", r"$\hat v$", "second", "corrected EMA of g squared"
    ),
    "move": _Box(
        "update",
        5,
        2,
        "update\n" + r"$-\mathrm{lr}\,\hat m\,/\,(\sqrt{\hat v}+\epsilon)$",
        "",
        "line",
        "update",
    ),
    "decayed": _Box(
        "weight decay",
        3,
        0,
        "weight decay\n" + r"$(1-\mathrm{lr}\,\lambda)\,w$",
        "",
        "row",
        "decayed weight",
    ),
    "new_weight": _Box("update", 6, 2, "new weight", "$w$", "parameter", "new weight"),
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
_KEPT = ("first", "second")
_WIDTH, _HEIGHT, _GHOST = 1.16, 0.7, "#DDDDDD"


def adamw_steps(upto: str, values: Mapping[str, float] | None = None) -> Figure:
    """Return the picture of one AdamW step, drawn up to the stage `upto`; the rest is faint.

    `upto` is one of `STAGES`. `values` gives numbers to write into the boxes: weight, loss,
    gradient, first, second, first_corrected, second_corrected, move, decayed, new_weight. A box
    without one shows its formula alone. Thick borders mark what the optimizer keeps.
    Raises ValueError for an unknown stage or an unknown name in `values`.
    """
    if upto not in STAGES:
        raise ValueError(f"upto is {upto!r}; the stages are {', '.join(STAGES)}")
    values = dict(values or {})
    unknown = sorted(set(values) - set(_BOXES))
    if unknown:
        raise ValueError(f"no box is named {', '.join(unknown)}; there are {', '.join(_BOXES)}")
    stages = STAGES[: STAGES.index(upto) + 1]
    reached = [name for name, box in _BOXES.items() if box.stage in stages]
    figure, axis = new_figure(9.4, 3.5)
    for name in _BOXES:
        _draw_box(axis, name, name in reached, values.get(name))
    for start, end in _ARROWS:
        _draw_arrow(axis, start, end, start in reached and end in reached)
    _draw_way_round(axis, "new_weight" in reached, "decayed" in reached)
    axis.set(xlim=(-0.65, 8.85), ylim=(-0.5, 3.75))
    axis.axis("off")
    spoken = [
        _BOXES[name].spoken + (f" {values[name]:g}" if name in values else "") for name in reached
    ]
    kept = " Kept for the next step: the two EMAs." if "second" in reached else ""
    return describe(
        figure, f"stage {len(stages)} of {len(STAGES)}, {upto}. Boxes: {'; '.join(spoken)}.{kept}"
    )


def _place(name: str) -> tuple[float, float]:
    box = _BOXES[name]
    return 1.36 * box.column, float(box.lane)


def _draw_box(axis, name: str, reached: bool, value: float | None) -> None:
    box, (x, y) = _BOXES[name], _place(name)
    kept = name in _KEPT
    corner = (x - _WIDTH / 2, y - _HEIGHT / 2)
    axis.add_patch(
        FancyBboxPatch(
            corner,
            _WIDTH,
            _HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor="white",
            edgecolor=COLORS[box.color] if reached else _GHOST,
            linewidth=(3.2 if kept else 1.4) if reached else 0.8,
            linestyle="-" if reached else (0, (3, 3)),
            zorder=2,
        )
    )
    if not reached:
        return
    number = "" if value is None else f"{value:{'+' if name == 'move' else ''}g}"
    last = " = ".join(part for part in (box.formula, number.replace("-", "\u2212")) if part)
    text = "\n".join(part for part in (box.title, last) if part)
    axis.text(x, y, text, ha="center", va="center", fontsize=8.5, gid=name)
    if kept:
        axis.text(x, y + 0.42, "kept", ha="center", va="bottom", fontsize=8, style="italic")


def _draw_arrow(axis, start: str, end: str, reached: bool) -> None:
    (x0, y0), (x1, y1) = _place(start), _place(end)
    _arrow(axis, (x0 + _WIDTH / 2, y0), (x1 - _WIDTH / 2, y1), COLORS["ink"] if reached else _GHOST)


def _arrow(axis, start, end, color) -> None:
    style = {"arrowstyle": "-|>", "color": color, "lw": 1.0, "shrinkA": 0, "shrinkB": 1}
    axis.annotate("", end, start, arrowprops=style, zorder=1)


def _draw_way_round(axis, reached: bool, decays: bool) -> None:
    # From the old weight to the new one, below the averages: decay never passes through them.
    color = COLORS["row"] if decays else COLORS["ink"] if reached else _GHOST
    (left, top), (right, _) = _place("weight"), _place("new_weight")
    axis.plot([left, left, right], [top - _HEIGHT / 2, 0, 0], color=color, lw=1.0, zorder=1)
    _arrow(axis, (right, 0), (right, top - _HEIGHT / 2), color)


def ema_weights(weights: Mapping[float, Sequence[float]]) -> Figure:
    """Return the picture of how much an EMA gives to each value of the past, one panel a beta.

    `weights` maps a beta to the weights of the newest value (age 0), the one before it (age 1) and
    so on. The dark bars are the newest 1 / (1 - beta) values, the average's time scale.
    Raises ValueError if a time scale is longer than its list of weights.
    """
    figure, axes = new_figure(
        7.5, 1.9 * len(weights), rows=len(weights), sharex=True, squeeze=False
    )
    words = []
    for axis, (beta, shares) in zip(axes[:, 0], weights.items(), strict=True):
        scale = round(1 / (1 - beta))
        if scale > len(shares):
            raise ValueError(f"beta {beta} looks back {scale} values; {len(shares)} weights given")
        colors = [COLORS["line"]] * scale + ["#BBD3E6"] * (len(shares) - scale)
        axis.bar(range(len(shares)), shares, color=colors, width=0.8)
        recent = sum(shares[:scale])
        axis.text(
            len(shares) - 0.5,
            0.75 * max(shares),
            f"beta = {beta:g}: the newest {scale} values (dark)\nhave {recent:.2f} of the weight",
            ha="right",
        )
        axis.set(ylabel="weight", xlim=(-0.7, len(shares) - 0.3))
        words.append(
            f"with beta {beta:g} the newest value has weight {shares[0]:.3g}, each older one "
            f"{beta:g} times the weight of the next, and the newest {scale} together {recent:.2f}"
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
    axis.legend(loc="lower right", frameon=False, fontsize=9)
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
    axis.text(eps * 1.4, lr * 2e-5, f"size of gradient = eps = {eps:g}", fontsize=9)
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

    `paths` maps an optimizer's name to {gradient size: the weight after 0, 1, 2 ... steps}. `lr` is
    named in the description only.
    """
    figure, axes = new_figure(8.4, 3.4, columns=len(paths), sharey=True, squeeze=False)
    styles = [
        (COLORS["line"], "-"),
        (COLORS["row"], (0, (5, 3))),
        (COLORS["second"], (0, (1, 1.5))),
    ]
    words = []
    for axis, (name, weights) in zip(axes[0], paths.items(), strict=True):
        for (size, path), (color, dashes) in zip(weights.items(), styles, strict=False):
            axis.plot(range(len(path)), path, color=color, ls=dashes, lw=2.2, label=f"{size:g}")
        axis.set_title(name, fontsize=10)
        axis.set(xlabel="step", ylim=(0, None))
        ends = ", ".join(
            f"{path[-1]:.2f} for gradients of size {size:g}" for size, path in weights.items()
        )
        words.append(f"{name} ends at {ends}")
    axes[0, 0].set_ylabel("weight")
    axes[0, -1].legend(title="size of the gradients", loc="lower left", frameon=False, fontsize=9)
    steps = len(next(iter(weights.values()))) - 1
    return describe(figure, f"after {steps} steps with lr {lr:g}, {'; '.join(words)}.")
