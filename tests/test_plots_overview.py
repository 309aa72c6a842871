"""The pictures of lesson 00 draw what they are given."""

import pytest
from matplotlib.patches import Rectangle

from utils import plots
from utils.plots import overview


def squares(axis):
    return [patch for patch in axis.patches if isinstance(patch, Rectangle)]


def test_three_states_draws_one_square_a_number_with_area_by_bits():
    figure = overview.three_states(3, 5)
    counts, areas = [], []
    for axis in figure.axes:
        drawn = squares(axis)
        counts.append(len(drawn))
        areas.append({round(s.get_width() * s.get_height(), 6) for s in drawn})
    assert counts == [30, 8, 30]
    assert areas == [{1.0}, {1.0}, {0.25}]
    corners = [{(s.get_x(), s.get_y()) for s in squares(axis)} for axis in figure.axes]
    assert [len(places) for places in corners] == counts  # no square hides another
    assert "AdamW keeps 30 numbers of 32 bits, 120 bytes" in figure.get_label()
    assert "Adafactor keeps 8 numbers of 32 bits, 32 bytes" in figure.get_label()


@pytest.mark.parametrize("size", [(0, 3), (3, -1)])
def test_three_states_refuses_no_rows(size):
    with pytest.raises(ValueError, match="at least 1"):
        overview.three_states(*size)


def test_trade_off_draws_the_points():
    figure = overview.trade_off({"a": (2.0, 32.0), "b": (0.0016, 32.0), "c": (2.0, 8.125)})
    drawn = [tuple(c.get_offsets()[0]) for c in figure.axes[0].collections]
    assert drawn == [(2.0, 32.0), (0.0016, 32.0), (2.0, 8.125)]
    assert "c at 2 numbers a parameter and 8.125 bits" in figure.get_label()
    with pytest.raises(ValueError, match="above 0"):
        overview.trade_off({"a": (0, 32)})


def test_two_ways_puts_trainer_higher_and_accelerator_further_right():
    points = [tuple(c.get_offsets()[0]) for c in overview.two_ways().axes[0].collections]
    (trainer_x, trainer_y), (accelerator_x, accelerator_y) = points
    assert trainer_x < accelerator_x
    assert trainer_y > accelerator_y


def test_show_prints_the_words_and_stores_them_with_the_picture(capsys, monkeypatch):
    shown = []
    monkeypatch.setattr("utils.plots.base.display", lambda data, **kw: shown.append((data, kw)))
    figure, axis = plots.new_figure(4, 2)
    axis.plot([1, 2, 4])
    plots.show(plots.describe(figure, "a line\n  through 1, 2 and 4"))
    (data, options), words = shown[0], "a line through 1, 2 and 4"
    assert data["text/plain"] == words
    assert data["image/png"].startswith(b"\x89PNG")
    assert words.encode() in data["image/png"]
    assert options["metadata"]["image/png"] == {"width": 360, "height": 180, "alt": words}
    assert capsys.readouterr().out == f"In words: {words}\n"


def test_a_picture_without_words_is_refused():
    figure, _ = plots.new_figure()
    with pytest.raises(ValueError, match="no description"):
        plots.show(figure)
    with pytest.raises(ValueError, match="words is empty"):
        plots.describe(figure, "  ")
