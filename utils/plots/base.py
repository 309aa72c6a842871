"""What every picture shares: colours, a new figure, its description, its display."""

import io
import textwrap

from IPython.display import display
from matplotlib.figure import Figure

# Okabe and Ito's palette: its colours stay apart for the common kinds of colour blindness.
COLORS = {
    "parameter": "#999999",
    "gradient": "#E69F00",
    "first": "#56B4E9",
    "second": "#009E73",
    "row": "#D55E00",
    "column": "#CC79A7",
    "step": "#F0E442",
    "line": "#0072B2",
    "ink": "#222222",
}
_DPI = 144  # stored at more than the screen's resolution, shown smaller: sharp everywhere


def new_figure(width: float = 7.0, height: float = 3.2, columns: int = 1, rows: int = 1, **options):
    """Return `(figure, axes)` in the course's style; sizes in inches, axes as `subplots` gives.

    The figure is not registered with pyplot, so nothing shows it a second time.
    """
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    axes = figure.subplots(rows, columns, **options)
    for axis in axes.flat if hasattr(axes, "flat") else [axes]:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def describe(figure: Figure, words: str) -> Figure:
    """Return `figure` with `words` as its description: the plotted numbers and what they show.

    Raises ValueError if `words` is empty.
    """
    if not words.strip():
        raise ValueError("words is empty: a picture needs a description")
    figure.set_label(" ".join(words.split()))
    return figure


def show(figure: Figure) -> None:
    """Display `figure` with its description as alternative text, and print the description.

    Raises ValueError if the figure has no description (see `describe`).
    """
    words = figure.get_label()
    if not words:
        raise ValueError("this figure has no description: add one with plots.describe(figure, ...)")
    png = io.BytesIO()
    # The words travel inside the PNG too, so that a picture stored in another's place is noticed.
    figure.savefig(png, format="png", dpi=_DPI, metadata={"Description": words})
    width, height = (round(inches * 90) for inches in figure.get_size_inches())
    display(
        {"image/png": png.getvalue(), "text/plain": words},
        metadata={"image/png": {"width": width, "height": height, "alt": words}},
        raw=True,
    )
    print(textwrap.fill(f"In words: {words}", 92))
