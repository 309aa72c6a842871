"""Boxes and arrows for pictures of an algorithm that are built up stage by stage."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from utils.plots.base import COLORS, describe, new_figure

BOX_WIDTH, BOX_HEIGHT = 1.2, 0.78
COLUMN = 1.36  # from the middle of one column to the next
GHOST = "#DDDDDD"


class Box(NamedTuple):
    """One box: the stage that draws it, its column and lane, and what stands in it.

    `title` is the first line, `formula` stands before the number, `color` is a key of COLORS and
    `spoken` the name in the description. `kept` marks what is kept from one step to the next,
    `signed` writes a plus before a positive number.
    """

    stage: str
    column: float
    lane: float
    title: str
    formula: str
    color: str
    spoken: str
    kept: bool = False
    signed: bool = False

    @property
    def middle(self) -> tuple[float, float]:
        return COLUMN * self.column, float(self.lane)


def flow(
    boxes: Mapping[str, Box],
    arrows: Sequence[tuple[str, str]],
    stages: Sequence[str],
    upto: str,
    values: Mapping[str, float],
    size: tuple[float, float],
) -> tuple[Figure, object, list[str]]:
    """Return `(figure, axis, reached)`: the boxes up to the stage `upto`, the rest faint.

    `values` gives numbers to write into boxes; a box without one shows its formula alone. The
    description lists the boxes reached with their numbers. `size` is in inches.
    Raises ValueError for a stage or a box that does not exist.
    """
    if upto not in stages:
        raise ValueError(f"upto is {upto!r}; the stages are {', '.join(stages)}")
    unknown = sorted(set(values) - set(boxes))
    if unknown:
        raise ValueError(f"no box is named {', '.join(unknown)}; there are {', '.join(boxes)}")
    drawn = stages[: stages.index(upto) + 1]
    reached = [name for name, box in boxes.items() if box.stage in drawn]
    figure, axis = new_figure(*size)
    for name, box in boxes.items():
        _draw_box(axis, name, box, name in reached, values.get(name))
    starts = [start for start, _ in arrows]
    for start, end in arrows:
        color = COLORS["ink"] if start in reached and end in reached else GHOST
        _connect(axis, boxes[start].middle, boxes[end].middle, starts.count(start) > 1, color)
    columns = [box.middle[0] for box in boxes.values()]
    lanes = [box.middle[1] for box in boxes.values()]
    axis.set(xlim=(min(columns) - 0.66, max(columns) + 0.66))
    axis.set(ylim=(min(lanes) - 0.5, max(lanes) + 0.8))
    axis.axis("off")
    spoken = [
        boxes[name].spoken + (f" {values[name]:g}" if name in values else "") for name in reached
    ]
    kept = [boxes[name].spoken for name in reached if boxes[name].kept]
    ending = f" Kept for the next step: {' and '.join(kept)}." if kept else ""
    words = f"stage {len(drawn)} of {len(stages)}, {upto}. {'; '.join(spoken)}.{ending}"
    return describe(figure, words), axis, reached


def arrow(axis, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    """Draw an arrow from `start` to `end`."""
    style = {"arrowstyle": "-|>", "color": color, "lw": 1.0, "shrinkA": 0, "shrinkB": 1}
    axis.annotate("", end, start, arrowprops=style, zorder=1)


def _connect(axis, start, end, branches: bool, color: str) -> None:
    """Draw an arrow between boxes: straight within a lane, else with one corner.

    Where ways branch, they leave upwards or downwards; where they meet, they arrive so.
    """
    (x0, y0), (x1, y1) = start, end
    side = 0 if y0 == y1 else BOX_HEIGHT / 2 * (1 if y1 > y0 else -1)
    if not side:
        arrow(axis, (x0 + BOX_WIDTH / 2, y0), (x1 - BOX_WIDTH / 2, y1), color)
    elif branches:
        axis.plot([x0, x0], [y0 + side, y1], color=color, lw=1.0, zorder=1)
        arrow(axis, (x0, y1), (x1 - BOX_WIDTH / 2, y1), color)
    else:
        axis.plot([x0 + BOX_WIDTH / 2, x1], [y0, y0], color=color, lw=1.0, zorder=1)
        arrow(axis, (x1, y0), (x1, y1 - side), color)


def _draw_box(axis, name: str, box: Box, reached: bool, value: float | None) -> None:
    x, y = box.middle
    axis.add_patch(
        FancyBboxPatch(
            (x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2),
            BOX_WIDTH,
            BOX_HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor="white",
            edgecolor=COLORS[box.color] if reached else GHOST,
            linewidth=(3.2 if box.kept else 1.4) if reached else 0.8,
            linestyle="-" if reached else (0, (3, 3)),
            zorder=2,
        )
    )
    if not reached:
        return
    number = "" if value is None else f"{value:{'+' if box.signed else ''}g}"
    last = " = ".join(part for part in (box.formula, number.replace("-", "\u2212")) if part)
    text = "\n".join(part for part in (box.title, last) if part)
    # The gid names the box, so that a test finds the text of each.
    axis.text(x, y, text, ha="center", va="center", fontsize=8, gid=name, linespacing=1.3)
    if box.kept:
        axis.text(x, y + 0.45, "kept", ha="center", va="bottom", fontsize=8, style="italic")
