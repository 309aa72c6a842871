"""The pictures of lessons 03 and 04 show the numbers they are given."""

import pytest

from utils.plots import training as pictures


def test_schedule_and_loss_draws_both_series_and_the_mean():
    rates = [0.0, 0.5, 1.0, 0.5]
    losses = [4.0, 2.0, 1.0, 0.0]
    figure = pictures.schedule_and_loss(rates, losses, window=2)
    top, bottom = figure.axes
    assert list(top.lines[0].get_ydata()) == rates
    assert list(bottom.lines[0].get_ydata()) == losses
    assert list(bottom.lines[1].get_ydata()) == [4.0, 3.0, 1.5, 0.5]
    assert "climbs until step 3" in figure.get_label()
    assert "less than half" in figure.get_label()
    assert "more than half" in pictures.schedule_and_loss(rates, [1.0] * 4, 2).get_label()


@pytest.mark.parametrize(("rates", "losses"), [([1.0], [1.0]), ([1.0] * 30, [1.0] * 29), ([], [])])
def test_schedule_and_loss_needs_one_length(rates, losses):
    with pytest.raises(ValueError, match="one length"):
        pictures.schedule_and_loss(rates, losses)


def test_quality_draws_measures_and_baselines():
    measures = {"accuracy": [0.7, 0.9], "f1": [0.8, 0.85]}
    baselines = {"always": {"accuracy": 0.6, "f1": 0.88}}
    figure = pictures.quality(measures, baselines)
    for axis, name in zip(figure.axes, measures, strict=True):
        assert list(axis.lines[0].get_ydata()) == measures[name]
        assert list(axis.lines[1].get_ydata()) == [baselines["always"][name]] * 2
        assert axis.get_title().lower() == name
    assert "accuracy after 2 epochs lies above always" in figure.get_label()
    assert "f1 after 2 epochs lies above nothing" in figure.get_label()


def test_quality_needs_every_measure_of_a_baseline():
    with pytest.raises(ValueError, match="every baseline needs accuracy"):
        pictures.quality({"accuracy": [0.5]}, {"always": {"f1": 0.5}})


def test_two_runs_says_how_far_they_are_apart():
    figure = pictures.two_runs({"one": [1.0, 0.5], "other": [1.0, 0.5 + 1e-7]})
    assert [list(line.get_ydata()) for line in figure.axes[0].lines] == [
        [1.0, 0.5],
        [1.0, 0.5 + 1e-7],
    ]
    assert "nowhere further apart than 1e-5" in figure.get_label()
    assert "up to 1.0e-01 apart" in pictures.two_runs({"a": [0.5], "b": [0.6]}).get_label()
    with pytest.raises(ValueError, match="two runs"):
        pictures.two_runs({"a": [0.5], "b": [0.6, 0.7]})


def test_ease_and_control_places_each_way():
    figure = pictures.ease_and_control({"Trainer": (12, 0), "loop": (21, 6)})
    axis = figure.axes[0]
    assert [tuple(dots.get_offsets()[0]) for dots in axis.collections] == [(0, 12), (6, 21)]
    assert axis.yaxis_inverted()  # fewer statements stand higher
    assert "Trainer: 12 statements written, 0 of them" in figure.get_label()
    with pytest.raises(ValueError, match="at least 1 statement"):
        pictures.ease_and_control({"Trainer": (0, 1)})
