"""The pictures of lesson 02 draw what they are given."""

import pytest
import torch
from matplotlib.patches import Rectangle

from utils.plots import memory as pictures


def test_squares_draws_each_number_once_with_area_by_bytes():
    states = {
        "parameter": torch.ones(3, 5),
        "first moment": torch.ones(3, 5, dtype=torch.bfloat16),
        "step": torch.tensor(1.0),
    }
    figure = pictures.squares(states)
    drawn = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert len(drawn) == 15 + 15 + 1
    areas = [round(patch.get_width() * patch.get_height() / 0.94**2, 6) for patch in drawn]
    assert areas == [1.0] * 15 + [0.5] * 15 + [1.0]
    assert len({(patch.get_x(), patch.get_y()) for patch in drawn}) == 31
    assert "first moment, 15 numbers of 2 bytes, 30 bytes" in figure.get_label()


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({"momentum": torch.ones(2)}, "unknown name"),
        ({}, "unknown name"),
        ({"parameter": torch.ones(2, 2, 2)}, "two dimensions"),
        ({"parameter": torch.ones(401)}, "400 numbers"),
    ],
)
def test_squares_refuses_what_cannot_be_drawn(states, words):
    with pytest.raises(ValueError, match=words):
        pictures.squares(states)


def test_rulers_puts_the_same_bytes_under_both_units():
    figure = pictures.rulers(526_264_336)
    (bar,) = figure.axes[0].patches
    assert bar.get_width() == 526_264_336
    top = figure.axes[0].child_axes[0].xaxis
    for axis, unit in ((figure.axes[0].xaxis, 1024**2), (top, 10**6)):
        labels = [float(label.get_text().split()[0]) for label in axis.get_ticklabels()]
        assert [round(tick / unit, 6) for tick in axis.get_ticklocs()] == labels
    assert "501.88 on the MiB ruler and 526.26 on the MB ruler" in figure.get_label()
    with pytest.raises(ValueError, match="at least 1 MiB"):
        pictures.rulers(1000)


def test_bills_stacks_the_items_in_mib():
    mib = 1024**2
    given = {"a": {"weights": 2 * mib, "gradients": 3 * mib}, "b": {"weights": 7 * mib}}
    figure = pictures.bills(given, parameters=mib)
    bars = [(p.get_y() + 0.33, p.get_x(), p.get_width()) for p in figure.axes[0].patches]
    assert bars == [(0, 0, 2), (0, 2, 3), (1, 0, 7)]
    assert "a: weights 2.00, gradients 3.00, in all 5.00 MiB, 5.00 bytes" in figure.get_label()
    with pytest.raises(ValueError, match="unknown name"):
        pictures.bills({"a": {"activations": 3}}, 1)
    with pytest.raises(ValueError, match="at least 1 parameter"):
        pictures.bills({}, 5)


def test_weight_paths_draws_each_path():
    figure = pictures.weight_paths({"FP32": [1.0, 0.5, 0.2], "BF16": [1.0, 1.0]})
    lines = [list(line.get_ydata()) for line in figure.axes[0].lines]
    assert lines == [[1.0, 0.5, 0.2], [1.0, 1.0]]
    assert "FP32 from 1.0000 to 0.2000 in 2 steps" in figure.get_label()
    with pytest.raises(ValueError, match="one to four paths"):
        pictures.weight_paths({"FP32": []})
