"""The pictures of lesson 07 show the numbers they are given."""

import pytest
import torch

from utils.optimizers import dynamic_codebook, linear_codebook
from utils.plots import quantization as pictures


def test_magnitudes_counts_every_number_but_zeros():
    figure = pictures.magnitudes(
        {"one": torch.tensor([1.0, -0.1, 0.0]), "two": torch.tensor([1e-30, 2.0, 1e-3, 1.0])}
    )
    heights = [[bar.get_height() for bar in axis.patches] for axis in figure.axes]
    assert [sum(h) for h in heights] == [2, 4]
    assert heights[1][0] == 1  # the tiny one is counted at the edge
    assert "one: 100% lie within" in figure.get_label()
    assert "two: 75% lie within" in figure.get_label()
    for bad in ({}, {"none": torch.zeros(3)}):
        with pytest.raises(ValueError, match="other than 0"):
            pictures.magnitudes(bad)


def test_codes_draws_the_positive_ones():
    figure = pictures.codes({"linear": linear_codebook(), "dynamic": dynamic_codebook()})
    drawn = [len(lines.get_segments()) for lines in figure.axes[0].collections]
    assert drawn == [127, 128]
    assert "linear: 127 codes above 0, from 0.0079 to 1" in figure.get_label()
    with pytest.raises(ValueError, match="code above 0"):
        pictures.codes({"empty": torch.tensor([-1.0, 0.0])})


def test_error_by_size_is_1_where_a_number_becomes_0():
    figure = pictures.error_by_size({"two codes": torch.tensor([0.0, 1.0])}, lowest=-2)
    curve = figure.axes[0].lines[0]
    sizes, errors = curve.get_xdata(), curve.get_ydata()
    assert len(errors) == 12
    assert errors[sizes < 0.4] == pytest.approx(1)
    assert errors[-1] < 0.3
    assert "two codes: " in figure.get_label()
    assert "100.0% at 1e-1" in figure.get_label()


def test_error_by_block_draws_every_block():
    errors = {"one": torch.tensor([0.5, 0.25, 0.5]), "many": torch.tensor([0.01, 0.25, 0.03])}
    figure = pictures.error_by_block(errors, 1)
    drawn = [line.get_ydata().tolist() for line in figure.axes[0].lines]
    assert drawn[0] == [0.5, 0.25, 0.5]
    assert "one: 25% in it, 50% in the median of the others" in figure.get_label()
    for bad in (
        {"a": torch.tensor([0.1]), "b": torch.tensor([0.1, 0.2])},
        {"a": torch.tensor([0.0, 1.0])},
        {"a": torch.ones(2, 2)},
    ):
        with pytest.raises(ValueError, match="one error above 0"):
            pictures.error_by_block(bad, 0)
    with pytest.raises(ValueError, match="one of 3 blocks, got 3"):
        pictures.error_by_block(errors, 3)
