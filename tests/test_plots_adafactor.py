"""The pictures of lessons 05 and 06 show the numbers they are given."""

import pytest
import torch

from utils.plots import adafactor as pictures


def test_steps_are_built_up_and_keep_two_vectors():
    whole = pictures.adafactor_steps("clipping").get_label()
    assert "stage 6 of 6" in whole
    assert "Kept for the next step: row statistics and column statistics" in whole
    assert "estimated second moment" not in pictures.adafactor_steps("gradient").get_label()
    with pytest.raises(ValueError, match="the stages are"):
        pictures.adafactor_steps("momentum")


def test_factoring_draws_matrix_sums_and_estimate():
    matrix = torch.tensor([[1.0, 2.0, 4.0], [3.0, 6.0, 9.0]])
    estimate = torch.outer(matrix.sum(1), matrix.sum(0)) / matrix.sum()
    figure = pictures.factoring(matrix, estimate)
    drawn = [axis.images[0].get_array() for axis in figure.axes if axis.images]
    shapes = [tuple(array.shape) for array in drawn]
    assert shapes == [(2, 3), (2, 1), (2, 3), (1, 3)]
    assert drawn[1].ravel().tolist() == [7.0, 18.0]
    assert drawn[3].ravel().tolist() == [4.0, 8.0, 13.0]
    # Below the smallest one percent of the scale a colour no longer falls.
    assert torch.allclose(torch.tensor(drawn[2]), estimate, rtol=0.05)
    assert "6 numbers against 5" in figure.get_label()


@pytest.mark.parametrize(
    ("matrix", "estimate", "words"),
    [
        (torch.ones(2), torch.ones(2), "two matrices"),
        (torch.ones(2, 3), torch.ones(3, 2), "two matrices"),
        (-torch.ones(2, 2), torch.ones(2, 2), "no negative"),
        (torch.zeros(2, 2), torch.zeros(2, 2), "some above zero"),
    ],
)
def test_factoring_refuses_what_it_cannot_draw(matrix, estimate, words):
    with pytest.raises(ValueError, match=words):
        pictures.factoring(matrix, estimate)


def test_step_ratios_counts_every_weight():
    figure = pictures.step_ratios(torch.tensor([0.25, 1.0, 1.0, 2.0, 1000.0]), "3 of 5")
    heights = [patch.get_height() for patch in figure.axes[0].patches[1:]]
    assert sum(heights) == 5  # the outlier is counted at the edge
    assert "3 of 5 lie within" in figure.get_label()
    with pytest.raises(ValueError, match="above 0"):
        pictures.step_ratios(torch.tensor([0.0, 1.0]), "")


def test_memory_by_size_draws_both_curves():
    figure = pictures.memory_by_size([10, 100])
    full, factored = (list(line.get_ydata()) for line in figure.axes[0].lines)
    assert full == [400, 40_000]
    assert factored == [80, 800]
    with pytest.raises(ValueError, match="two widths"):
        pictures.memory_by_size([10])


def test_decays_draws_the_share_of_the_newest():
    figure = pictures.decays([1, 2], [0.0, 0.25], 0.9)
    lines = figure.axes[0].lines
    assert list(lines[0].get_ydata()) == [1.0, 0.75]
    assert lines[1].get_ydata()[0] == pytest.approx(0.1)
    with pytest.raises(ValueError, match="one beta2 a step"):
        pictures.decays([1, 2], [0.0], 0.9)


def test_states_side_by_side_draws_bytes_to_scale():
    mib = 1024**2
    states = {"AdamW": {"m": 3 * mib, "v": mib}, "Adafactor": {"row": 1024}}
    figure = pictures.states_side_by_side(states)
    widths = [patch.get_width() for patch in figure.axes[0].patches]
    assert widths == [3.0, 1.0, pytest.approx(1 / 1024)]
    assert "AdamW: 4.00 MiB (m 3.00 MiB, v 1.00 MiB); Adafactor: 1.00 KiB" in figure.get_label()
    with pytest.raises(ValueError, match="at least 1 byte"):
        pictures.states_side_by_side({"none": {}})
