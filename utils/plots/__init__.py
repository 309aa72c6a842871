"""Pictures of the course: one function a picture, each returning a matplotlib Figure.

A figure carries its description in words as its label. `show` displays the picture and prints the
description, so that a reader who cannot see it learns the same, and nbval compares the plotted
numbers, which it does not do for pixels.
"""

from utils.plots.base import COLORS, describe, new_figure, show

__all__ = ["COLORS", "describe", "new_figure", "show"]
