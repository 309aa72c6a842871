"""The pictures of lesson 02: states as squares, two rulers, the bill of training, lost updates."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from utils.memory import MIB, mb, mib
from utils.plots.base import COLORS, describe, new_figure

# name: colour. The first two belong to the model, the rest to the optimizer.
STATES = {
    "parameter": COLORS["parameter"],
    "gradient": COLORS["gradient"],
    "first moment": COLORS["first"],
    "second moment": COLORS["second"],
    "largest second moment": COLORS["column"],
    "step": COLORS["step"],
}
ITEMS = {
    "weights": COLORS["parameter"],
    "gradients": COLORS["gradient"],
    "first moment": COLORS["first"],
    "second moment": COLORS["second"],
    "largest second moment": COLORS["column"],
}
_MODEL = ("parameter", "gradient")
_MOST_SQUARES = 400
_GAP = 1.6  # squares between two blocks


def squares(states: Mapping[str, Tensor]) -> Figure:
    """Return the picture of `states`: a square for each number, a colour for each state.

    `states` maps a name from `STATES` to a tensor of at most two dimensions; rows and columns are
    drawn as they are. A square's area is proportional to the bytes of its number, and FP32 fills
    its place. Raises ValueError for an unknown name, more dimensions, or more than 400 numbers.
    """
    _require_known(states, STATES)
    for name, tensor in states.items():
        if tensor.ndim > 2 or tensor.numel() > _MOST_SQUARES:
            raise ValueError(
                f"{name!r} has shape {tuple(tensor.shape)}: at most two dimensions and "
                f"{_MOST_SQUARES} numbers can be drawn as squares"
            )
    figure, axis = new_figure(9.0, 2.9)
    left, spans, words = 0.0, {}, []
    for name, tensor in states.items():
        rows, columns = (1, 1, *tensor.shape)[-2:]
        side = 0.94 * (tensor.element_size() / 4) ** 0.5
        width = max(columns, 3.2)  # room for the text below
        start = left + (width - columns) / 2
        for row in range(rows):
            for column in range(columns):
                corner = (start + column + (1 - side) / 2, -row - 1 + (1 - side) / 2)
                axis.add_patch(
                    Rectangle(corner, side, side, facecolor=STATES[name], edgecolor="none")
                )
        count, size = tensor.numel(), tensor.element_size()
        middle = left + width / 2
        axis.text(middle, 0.3, name, ha="center", va="bottom", fontsize=10)
        number = "number" if count == 1 else "numbers"
        axis.text(
            middle,
            -rows - 0.25,
            f"{count} {number} x {size} bytes\n= {count * size} bytes",
            ha="center",
            va="top",
            fontsize=9,
        )
        words.append(f"{name}, {count} {number} of {size} bytes, {count * size} bytes")
        spans[name] = (left, left + width)
        left += width + _GAP
    lowest = -max((1, *tensor.shape)[-2] if tensor.ndim else 1 for tensor in states.values())
    owners = {
        "held by the model": [name for name in states if name in _MODEL],
        "held by the optimizer: its state": [name for name in states if name not in _MODEL],
    }
    for owner, names in owners.items():
        if names:
            _bracket(axis, spans[names[0]][0], spans[names[-1]][1], lowest - 2.1, owner)
    axis.set(xlim=(-0.4, left - _GAP + 0.4), ylim=(lowest - 3.2, 1.2), aspect="equal")
    axis.axis("off")
    return describe(figure, f"{'; '.join(words)}. Each square is a number, each colour a state.")


def _bracket(axis, left: float, right: float, height: float, text: str) -> None:
    axis.plot(
        [left, left, right, right],
        [height + 0.25, height, height, height + 0.25],
        color=COLORS["ink"],
        lw=1.2,
    )
    axis.text((left + right) / 2, height - 0.15, text, ha="center", va="top", fontsize=10)


def rulers(num_bytes: int) -> Figure:
    """Return the picture of one size under two rulers: MiB (1024**2 bytes) and MB (10**6 bytes).

    Raises ValueError for less than 1 MiB.
    """
    if num_bytes < MIB:
        raise ValueError(f"num_bytes must be at least 1 MiB ({MIB} bytes), got {num_bytes}")
    figure, axis = new_figure(8.0, 2.2)
    axis.barh(0, num_bytes, height=0.5, color=COLORS["line"])
    step = 10 ** math.floor(math.log10(mb(num_bytes)))
    top = axis.secondary_xaxis("top")
    for ruler, unit, size in ((axis.xaxis, "MiB", MIB), (top.xaxis, "MB", 10**6)):
        marks = range(int(1.15 * num_bytes / size / step) + 1)
        ruler.set_ticks([mark * step * size for mark in marks])
        ruler.set_ticklabels([f"{mark * step:,g} {unit}" for mark in marks])
    axis.text(
        num_bytes / 2,
        0,
        f"{num_bytes:,} bytes\n= {mib(num_bytes):,.2f} MiB = {mb(num_bytes):,.2f} MB",
        ha="center",
        va="center",
        color="white",
    )
    axis.set(xlim=(0, 1.15 * num_bytes), ylim=(-0.45, 0.45), yticks=[])
    axis.spines["left"].set_visible(False)
    return describe(
        figure,
        f"{num_bytes:,} bytes reach {mib(num_bytes):,.2f} on the MiB ruler and "
        f"{mb(num_bytes):,.2f} on the MB ruler. The marks in MiB stand further apart.",
    )


def bills(bills: Mapping[str, Mapping[str, int]], parameters: int) -> Figure:
    """Return the picture of what stays in memory during training: one stacked bar for each bill.

    `bills` maps a setting to its items, and these map a name from `ITEMS` to bytes. `parameters`
    is the number of parameters that the total is divided by. Lengths are in MiB. Raises ValueError
    for an unknown item, no bill, or `parameters` below 1.
    """
    if not bills or parameters < 1:
        raise ValueError(f"need a bill and at least 1 parameter, got {len(bills)} and {parameters}")
    for items in bills.values():
        _require_known(items, ITEMS)
    figure, axis = new_figure(9.0, 1.25 + 0.62 * len(bills))
    longest = max(mib(sum(items.values())) for items in bills.values())
    words, shown = [], set()
    for place, (setting, items) in enumerate(bills.items()):
        left = 0.0
        for name, num_bytes in items.items():
            length = mib(num_bytes)
            label = None if name in shown else name
            shown.add(name)
            axis.barh(place, length, 0.66, left, color=ITEMS[name], edgecolor="white", label=label)
            if length > 0.055 * longest:
                axis.text(left + length / 2, place, f"{length:,.0f}", ha="center", va="center")
            left += length
        each = sum(items.values()) / parameters
        axis.text(
            left + 0.012 * longest,
            place,
            f"{left:,.0f} MiB\n{each:.2f} bytes a parameter",
            va="center",
            fontsize=9,
        )
        parts = ", ".join(f"{name} {mib(num_bytes):,.2f}" for name, num_bytes in items.items())
        words.append(f"{setting}: {parts}, in all {left:,.2f} MiB, {each:.2f} bytes a parameter")
    axis.set_yticks(range(len(bills)), list(bills))
    axis.set(xlim=(0, 1.28 * longest), ylim=(len(bills) - 0.45, -0.55), xlabel="MiB")
    figure.legend(loc="outside upper center", ncols=len(shown), frameon=False)
    return describe(figure, f"{'; '.join(words)}.")


def weight_paths(paths: Mapping[str, Sequence[float]]) -> Figure:
    """Return the picture of a weight after each step, one line for each entry of `paths`.

    Each path holds the weight before the first step and after every one; lengths may differ.
    Raises ValueError for no path, an empty one, or more than four.
    """
    if not 1 <= len(paths) <= 4 or not all(len(path) for path in paths.values()):
        raise ValueError(f"one to four paths of at least one value, got {dict(paths)}")
    figure, axis = new_figure(7.5, 3.2)
    styles = zip(
        (COLORS["line"], COLORS["row"], COLORS["second"], COLORS["column"]), "osD^", strict=True
    )
    words = []
    for (name, path), (color, marker) in zip(paths.items(), styles, strict=False):
        axis.plot(range(len(path)), path, color=color, marker=marker, ms=5, label=name)
        axis.annotate(
            name,
            (len(path) - 1, path[-1]),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            color=color,
        )
        words.append(f"{name} from {path[0]:.4f} to {path[-1]:.4f} in {len(path) - 1} steps")
    longest = max(len(path) for path in paths.values()) - 1
    axis.set(xlabel="step", ylabel="weight", xlim=(-0.3, 1.3 * longest + 0.3))
    axis.set_xticks([tick for tick in axis.get_xticks() if 0 <= tick <= longest])
    return describe(figure, f"The weight moves: {'; '.join(words)}.")


def _require_known(names: Mapping, known: Mapping) -> None:
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"unknown name {unknown}: the names are {', '.join(known)}")
