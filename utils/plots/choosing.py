"""The pictures of lesson 08: the measured trade-off, runs by seed, plans against a device."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from utils.memory import GIB, Plan, format_bytes
from utils.plots.base import COLORS, describe, new_figure

_PALETTE = ("first", "row", "second", "column", "line")


def measured_trade_off(
    points: Mapping[str, tuple[float, float, float]], quality: Mapping[str, str], floor: float
) -> Figure:
    """Return the picture of optimizers by numbers stored, bits a number, and quality as bubbles.

    `points` maps a name to (numbers stored a parameter, bits a number, quality); a bubble's area is
    proportional to quality minus `floor`. `quality` gives each quality as text, with as many digits
    as hold elsewhere. Grey lines join places of equal bytes a parameter.
    Raises ValueError for numbers or bits of 0 or below, a quality not above `floor`, or other names.
    """
    if not points or set(points) != set(quality):
        raise ValueError(f"need a quality for each of {sorted(points)}, got {sorted(quality)}")
    if any(n <= 0 or bits <= 0 or good <= floor for n, bits, good in points.values()):
        raise ValueError(f"numbers and bits must be above 0, quality above {floor}: {dict(points)}")
    figure, axis = new_figure(8.0, 4.4)
    left, right = 5e-3, 20.0
    for size in (0.1, 1, 8):
        axis.plot([left, right], [size * 8 / left, size * 8 / right], color="#CCCCCC", zorder=1)
        label = f"{size:g} bytes\na parameter"
        axis.text(size * 8 / 80, 82, label, fontsize=8, color="#666666", ha="center", va="bottom")
    words = []
    for (name, (numbers, bits, good)), color in zip(points.items(), _PALETTE, strict=False):
        area = 9000 * (good - floor)
        axis.scatter(numbers, bits, s=area, color=COLORS[color], alpha=0.85, zorder=3)
        axis.annotate(
            f"{name}\naccuracy {quality[name]}",
            (numbers, bits),
            xytext=(0, 24),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8},
            zorder=4,
        )
        words.append(
            f"{name}: {numbers:.3g} numbers a parameter of {bits:.3g} bits, accuracy {quality[name]}"
        )
    axis.set(
        xscale="log",
        yscale="log",
        xlim=(left, right),
        ylim=(5, 80),
        yticks=[8, 16, 32],
        yticklabels=["8", "16", "32"],
        xlabel="numbers stored for each parameter (log scale)",
        ylabel="bits for each number (log scale)",
    )
    axis.minorticks_off()
    return describe(
        figure, f"{'; '.join(words)}. The area of a bubble is its accuracy above {floor:.2f}."
    )


def plans(plans: Mapping[str, Plan], devices: Sequence[float]) -> Figure:
    """Return the picture of what each plan needs: stacked bars in GiB, with lines for device sizes.

    `devices` are sizes in GiB. Raises ValueError for no plan or a device size of 0 or below.
    """
    if not plans or any(size <= 0 for size in devices):
        raise ValueError(f"need a plan and device sizes above 0, got {len(plans)} and {devices}")
    figure, axis = new_figure(9.0, 1.4 + 0.42 * len(plans))
    parts = {
        "weights": COLORS["parameter"],
        "gradients": COLORS["gradient"],
        "optimizer": COLORS["second"],
        "activations": COLORS["column"],
    }
    parts = {
        part: color
        for part, color in parts.items()
        if any(getattr(plan, part) for plan in plans.values())
    }
    longest = max(plan.total for plan in plans.values()) / GIB
    words = []
    for place, (name, plan) in enumerate(plans.items()):
        start = 0.0
        for part, color in parts.items():
            length = getattr(plan, part) / GIB
            label = part if place == 0 else None
            axis.barh(place, length, 0.65, start, color=color, label=label)
            start += length
        axis.text(start + 0.01 * longest, place, format_bytes(plan.total), va="center", fontsize=9)
        words.append(f"{name}: {format_bytes(plan.total)}")
    for size in devices:
        axis.axvline(size, color=COLORS["ink"], lw=1, ls=":")
        axis.text(size, -0.75, f"{size:g} GiB", ha="center", va="bottom", fontsize=9)
    axis.set_yticks(range(len(plans)), list(plans))
    axis.set(xlim=(0, 1.17 * longest), ylim=(len(plans) - 0.5, -0.7), xlabel="GiB")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return describe(figure, f"{'; '.join(words)}.")
