"""The pictures of lesson 00: what three optimizers store, and two ways to train."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from utils.plots.base import COLORS, describe, new_figure


def state_shapes(rows: int, columns: int) -> dict[str, list[tuple[str, int, int, int]]]:
    """Return what each optimizer keeps for a `rows` x `columns` matrix, as drawn by `three_states`.

    Each state is (name, rows, columns, bits a number). Step counters and quantization scales are
    left out: the lessons on each optimizer count them.
    """
    if rows < 1 or columns < 1:
        raise ValueError(f"rows and columns must be at least 1, not {rows} and {columns}")
    return {
        "AdamW": [("first moment", rows, columns, 32), ("second moment", rows, columns, 32)],
        "Adafactor": [("row statistics", rows, 1, 32), ("column statistics", 1, columns, 32)],
        "8-bit Adam": [("first moment", rows, columns, 8), ("second moment", rows, columns, 8)],
    }


def three_states(rows: int = 6, columns: int = 8) -> Figure:
    """Return the picture of what AdamW, Adafactor and 8-bit Adam store for one weight matrix.

    One square is one number, and its area is proportional to its bits: a block's area is its bytes.
    """
    colors = {
        "first moment": COLORS["first"],
        "second moment": COLORS["second"],
        "row statistics": COLORS["row"],
        "column statistics": COLORS["column"],
    }
    figure, axes = new_figure(9.0, 3.6, columns=3)
    words = []
    for axis, (name, states) in zip(axes, state_shapes(rows, columns).items(), strict=True):
        top = 0.0
        for state, height, width, bits in states:
            side = (bits / 32) ** 0.5
            for row in range(height):
                for column in range(width):
                    corner = (column * side, top - (row + 1) * side)
                    axis.add_patch(
                        Rectangle(corner, side, side, facecolor=colors[state], edgecolor="white")
                    )
            axis.text(0, top + 0.25, state, color=COLORS["ink"], fontsize=9)
            top -= height + 1.7
        numbers = sum(height * width for _, height, width, _ in states)
        bits = states[0][3]
        total = numbers * bits // 8
        axis.set_title(f"{name}\n{numbers} numbers x {bits} bits = {total} bytes", fontsize=10)
        axis.set(xlim=(-0.3, columns + 0.3), ylim=(-2 * rows - 2.4, 1.2), aspect="equal")
        axis.axis("off")
        words.append(f"{name} keeps {numbers} numbers of {bits} bits, {total} bytes")
    return describe(
        figure,
        f"For a {rows} x {columns} weight matrix: {'; '.join(words)}. One square is a number.",
    )


def trade_off(points: Mapping[str, tuple[float, float]]) -> Figure:
    """Return the picture of optimizers by numbers stored a parameter against bits a number.

    `points` maps a name to (numbers stored a parameter, bits a number), both above 0. Grey lines
    join places of equal bytes a parameter: memory is the product of the two.
    """
    if any(numbers <= 0 or bits <= 0 for numbers, bits in points.values()):
        raise ValueError(f"numbers and bits must be above 0: {dict(points)}")
    figure, axis = new_figure(7.5, 4.0)
    left, right = 3e-4, 20.0
    for size in (0.01, 0.1, 1, 8):
        axis.plot([left, right], [size * 8 / left, size * 8 / right], color="#CCCCCC", zorder=1)
        label = f"{size:g} bytes\na parameter"
        axis.text(size * 8 / 64, 66, label, fontsize=8, color="#666666", ha="center", va="bottom")
    markers = zip(points.items(), ("o", "s", "^", "D", "v"), strict=False)
    palette = [COLORS["first"], COLORS["row"], COLORS["second"], COLORS["column"], COLORS["line"]]
    for (name, (numbers, bits)), marker in markers:
        color = palette["os^Dv".index(marker)]
        axis.scatter(numbers, bits, s=110, marker=marker, color=color, zorder=3)
        label = axis.annotate(
            name, (numbers, bits), xytext=(0, 12), textcoords="offset points", ha="center"
        )
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})
    axis.set(
        xscale="log",
        yscale="log",
        xlim=(left, right),
        ylim=(4, 64),
        yticks=[8, 16, 32],
        yticklabels=["8", "16", "32"],
        xlabel="numbers stored for each parameter (log scale)",
        ylabel="bits for each number",
    )
    axis.minorticks_off()
    words = "; ".join(
        f"{name} at {numbers:.4g} numbers a parameter and {bits:.4g} bits a number"
        for name, (numbers, bits) in points.items()
    )
    return describe(figure, f"{words}. Memory shrinks towards the left and downwards.")


def two_ways() -> Figure:
    """Return the picture of Trainer and Accelerator by ease of use and customisability.

    A sketch of the two roles, not a measurement: lesson 04 measures both.
    """
    figure, axis = new_figure(7.0, 3.6)
    spots = {
        "Trainer": (0.24, 0.74, "you write the settings,\nit runs the loop", COLORS["row"]),
        "Accelerator": (0.74, 0.28, "you write the loop,\nit handles the devices", COLORS["line"]),
    }
    for name, (x, y, role, color) in spots.items():
        axis.scatter(x, y, s=160, color=color, zorder=3)
        axis.text(x, y + 0.08, name, ha="center", weight="bold")
        axis.text(x, y - 0.08, role, ha="center", va="top", fontsize=9)
    axis.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
    axis.set_xlabel("how much you can customise  \u2192")
    axis.set_ylabel("how easy it is to use  \u2192")
    return describe(
        figure,
        "Trainer stands high on ease of use and low on customisability: you write the settings, it "
        "runs the loop. Accelerator stands the other way round: you write the loop, it handles the "
        "devices.",
    )
