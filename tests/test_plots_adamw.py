"""The pictures of lesson 01 draw what they are given."""

import pytest
from matplotlib.colors import to_hex, to_rgba

from utils.plots import COLORS, adamw

VALUES = {
    "weight": 1.5,
    "loss": 0.25,
    "gradient": -2.0,
    "first": -0.2,
    "second": 0.004,
    "first_corrected": -2.0,
    "second_corrected": 4.0,
    "move": 0.1,
    "decayed": 1.47,
    "new_weight": 1.57,
}
GROWTH = [
    {"weight", "loss"},
    {"gradient"},
    {"first"},
    {"second"},
    {"first_corrected", "second_corrected"},
    {"move", "new_weight"},
    {"decayed"},
]


def texts(figure):
    return {text.get_gid(): text.get_text() for text in figure.axes[0].texts if text.get_gid()}


def strong_borders(figure):
    return [p for p in figure.axes[0].patches if to_hex(p.get_edgecolor()) != "#dddddd"]


@pytest.mark.parametrize("number", range(len(adamw.STAGES)))
def test_each_stage_adds_its_boxes_and_keeps_the_others(number):
    figure = adamw.adamw_steps(adamw.STAGES[number], VALUES)
    expected = set().union(*GROWTH[: number + 1])
    assert set(texts(figure)) == expected
    assert len(strong_borders(figure)) == len(expected)
    assert len(figure.axes[0].patches) == len(VALUES)  # the boxes to come are there, faint
    assert figure.get_label().startswith(f"stage {number + 1} of 7, {adamw.STAGES[number]}.")


def test_the_boxes_hold_the_numbers_given():
    figure = adamw.adamw_steps("weight decay", VALUES)
    written = texts(figure)
    assert written["loss"] == "forward pass\nloss = 0.25"
    assert written["gradient"].endswith("= \u22122")
    assert written["first"].endswith("= \u22120.2")
    assert written["second"].endswith("= 0.004")
    assert written["second_corrected"].endswith("= 4")
    assert written["move"].endswith("+0.1")
    assert written["decayed"].endswith("1.47")
    assert written["new_weight"].endswith("= 1.57")
    assert "gradient -2; m (EMA of g) -0.2; v (EMA of g squared) 0.004;" in figure.get_label()


def test_only_the_two_averages_are_marked_as_kept():
    figure = adamw.adamw_steps("weight decay")
    thick = [p for p in figure.axes[0].patches if p.get_linewidth() > 3]
    colors = [to_hex(p.get_edgecolor()) for p in thick]
    assert colors == [COLORS["first"].lower(), COLORS["second"].lower()]
    assert [t.get_text() for t in figure.axes[0].texts].count("kept") == 2
    assert "Kept for the next step: m (EMA of g) and v" in figure.get_label()
    assert "Kept" not in adamw.adamw_steps("gradient").get_label()


def test_without_values_the_formulas_stand_alone():
    assert texts(adamw.adamw_steps("first moment"))["first"] == "EMA of $g$\n$m$"


def test_the_way_round_is_coloured_as_decay_only_at_the_end():
    colors = []
    for stage in ("bias correction", "update", "weight decay"):
        lines = adamw.adamw_steps(stage).axes[0].lines
        colors += [to_rgba(line.get_color()) for line in lines if line.get_gid() == "way round"]
    assert colors == [to_rgba("#DDDDDD"), to_rgba(COLORS["ink"]), to_rgba(COLORS["row"])]


def test_unknown_stage_and_box_are_refused():
    with pytest.raises(ValueError, match="'momentum'; the stages are forward, gradient"):
        adamw.adamw_steps("momentum")
    with pytest.raises(ValueError, match="no box is named third"):
        adamw.adamw_steps("forward", {"third": 1.0})


def test_ema_shares_draws_each_bar_and_darkens_the_time_scale():
    shares = {beta: [(1 - beta) * beta**age for age in range(12)] for beta in (0.75, 0.9)}
    figure = adamw.ema_shares(shares)
    for axis, (beta, scale) in zip(figure.axes, ((0.75, 4), (0.9, 10)), strict=True):
        assert [bar.get_height() for bar in axis.patches] == shares[beta]
        dark = [to_rgba(COLORS["line"]) == bar.get_facecolor() for bar in axis.patches]
        assert dark == [True] * scale + [False] * (12 - scale)
    assert "the newest 4 together 0.68" in figure.get_label()  # 1 - 0.75**4
    with pytest.raises(ValueError, match="looks back 10 values; 6 shares"):
        adamw.ema_shares({0.9: [0.1] * 6})


def test_zero_start_draws_its_three_sequences():
    figure = adamw.zero_start([3.0, 0.5, 2.5], [0.3, 0.32, 0.54], [3.0, 1.68, 2.0], mean=1.5)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    drawn = {name: list(line.get_ydata()) for name, line in lines.items()}
    assert drawn == {
        "true mean": [1.5, 1.5],
        "values": [3.0, 0.5, 2.5],
        "raw EMA, started at 0": [0.3, 0.32, 0.54],
        "bias-corrected EMA": [3.0, 1.68, 2.0],
    }
    assert list(lines["values"].get_xdata()) == [1, 2, 3]
    assert "After step 1 the raw EMA is 0.3 and the corrected one 3" in figure.get_label()
    with pytest.raises(ValueError, match="lengths differ: 2, 1, 2"):
        adamw.zero_start([1.0, 2.0], [1.0], [1.0, 2.0], mean=1.5)


def test_first_steps_draws_the_points_on_the_formula():
    figure = adamw.first_steps([100.0, 1e-6], [0.2, 0.1], lr=0.2, eps=1e-6)
    descent, formula, points, _ = figure.axes[0].lines
    assert list(points.get_xdata()) == [100.0, 1e-6]
    assert list(points.get_ydata()) == [0.2, 0.1]
    for g, step, line in zip(
        formula.get_xdata(), formula.get_ydata(), descent.get_ydata(), strict=True
    ):
        assert step == pytest.approx(0.2 * g / (g + 1e-6))
        assert line == pytest.approx(0.2 * g)
    assert "100 gives 0.2; 1e-06 gives 0.1" in figure.get_label()
    with pytest.raises(ValueError, match="2 gradients and 1 moves"):
        adamw.first_steps([1.0, 2.0], [0.1], lr=0.1, eps=1e-8)


def test_decay_paths_draws_every_path_and_says_when_they_coincide():
    apart = {0.1: [1.0, 0.5, 0.2], 10.0: [1.0, 0.9, 0.8]}
    alike = {0.1: [1.0, 0.7, 0.5], 10.0: [1.0, 0.7, 0.505]}
    figure = adamw.decay_paths({"L2": apart, "decoupled": alike}, lr=0.01)
    for axis, paths in zip(figure.axes, (apart, alike), strict=True):
        assert [list(line.get_ydata()) for line in axis.lines] == list(paths.values())
    notes = [[text.get_text() for text in axis.texts] for axis in figure.axes]
    assert notes == [[], ["2 lines,\none on the other"]]
    assert "after 2 steps with lr 0.01, L2 ends at 0.20 (gradients of size 0.1)" in (
        figure.get_label()
    )
