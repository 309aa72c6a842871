"""The pictures of lessons 03 and 04: schedule and loss, quality by epoch, two ways to train."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from utils.plots.base import COLORS, describe, new_figure


def schedule_and_loss(rates: Sequence[float], losses: Sequence[float], window: int = 25) -> Figure:
    """Return the picture of the learning rate above the loss, both by step.

    One value of each a step. The loss is drawn as it is, and as the mean of the last `window`
    steps. Raises ValueError unless both have one length of at least `window`.
    """
    if len(rates) != len(losses) or len(losses) < window or window < 1:
        raise ValueError(
            f"rates and losses need one length of at least window, got {len(rates)}, {len(losses)} "
            f"and {window}"
        )
    figure, (top, bottom) = new_figure(8.0, 4.4, rows=2, sharex=True)
    steps = range(1, len(losses) + 1)
    top.plot(steps, rates, color=COLORS["line"])
    peak = max(range(len(rates)), key=rates.__getitem__)
    top.annotate(
        f"highest at step {peak + 1}",
        (peak + 1, rates[peak]),
        xytext=(0, 6),
        textcoords="offset points",
    )
    top.set(ylabel="learning rate", ylim=(0, 1.25 * max(rates)))
    means = [
        sum(losses[max(0, i - window + 1) : i + 1]) / min(i + 1, window) for i in range(len(losses))
    ]
    bottom.plot(steps, losses, color=COLORS["parameter"], lw=0.6, label="each step")
    bottom.plot(steps, means, color=COLORS["row"], lw=2, label=f"mean of the last {window}")
    bottom.set(xlabel="step", ylabel="training loss", ylim=(0, None))
    bottom.legend(frameon=False, ncols=2, loc="upper right")
    half = "less" if means[-1] < means[window - 1] / 2 else "more"
    return describe(
        figure,
        f"{len(losses)} steps. The learning rate climbs until step {peak + 1} and then falls to "
        f"{rates[-1]:.0e}. At the end the mean loss is {half} than half of what it was in the first "
        f"{window} steps.",
    )


def quality(
    measures: Mapping[str, Sequence[float]], baselines: Mapping[str, Mapping[str, float]]
) -> Figure:
    """Return the picture of each measure after every epoch, with the baselines as dashed lines.

    `measures` maps a name ("accuracy") to its values by epoch; `baselines` maps a baseline's name
    to a value for each measure. Raises ValueError for no measure or a baseline that lacks one.
    """
    if not measures or any(set(measures) - set(found) for found in baselines.values()):
        raise ValueError(f"every baseline needs {', '.join(measures) or 'a measure'}")
    figure, axes = new_figure(8.4, 3.4, columns=len(measures), squeeze=False)
    styles = ((COLORS["parameter"], ":"), (COLORS["gradient"], "--"), (COLORS["column"], "-."))
    words = []
    for axis, (measure, values) in zip(axes[0], measures.items(), strict=True):
        epochs = range(1, len(values) + 1)
        axis.plot(epochs, values, color=COLORS["line"], marker="o", lw=2)
        axis.annotate("DistilBERT", (epochs[-1], values[-1]), xytext=(0, 8),
                      textcoords="offset points", ha="right", color=COLORS["line"])  # fmt: skip
        highest = max((found[measure] for found in baselines.values()), default=0.0)
        beaten = []
        for (name, found), (color, dash) in zip(baselines.items(), styles, strict=False):
            axis.axhline(found[measure], color=color, ls=dash)
            above = found[measure] == highest  # the others below their line: they may lie close
            axis.annotate(
                name,
                (epochs[-1], found[measure]),
                xytext=(0, 3 if above else -3),
                textcoords="offset points",
                ha="right",
                va="bottom" if above else "top",
            )
            if values[-1] > found[measure]:
                beaten.append(name)
        lowest = min([*values, *(found[measure] for found in baselines.values())])
        axis.set(title=measure.replace("f1", "F1"), xlabel="epoch", ylim=(lowest - 0.06, 1.0))
        axis.set_xticks(list(epochs))
        baseline_words = ", ".join(
            f"{name} {found[measure]:.2f}" for name, found in baselines.items()
        )
        words.append(
            f"{measure} after {len(values)} epochs lies above {' and '.join(beaten) or 'nothing'} "
            f"({baseline_words})"
        )
    return describe(figure, f"{'; '.join(words)}.")


def two_runs(runs: Mapping[str, Sequence[float]]) -> Figure:
    """Return the picture of two loss curves over each other: a broad line and dots.

    Raises ValueError unless there are two of one length.
    """
    if len(runs) != 2 or len({len(losses) for losses in runs.values()}) != 1:
        raise ValueError(f"two runs of one length, got {[len(run) for run in runs.values()]}")
    figure, axis = new_figure(8.0, 3.0)
    (first, one), (second, other) = runs.items()
    steps = range(1, len(one) + 1)
    axis.plot(steps, one, color=COLORS["first"], lw=6, label=first, solid_capstyle="round")
    axis.plot(steps, other, color=COLORS["ink"], marker=".", ls="none", ms=5, label=second)
    axis.set(xlabel="step", ylabel="training loss", ylim=(0, None))
    axis.legend(frameon=False, ncols=2)
    apart = max(abs(a - b) for a, b in zip(one, other, strict=True))
    same = "nowhere further apart than 1e-5" if apart <= 1e-5 else f"up to {apart:.1e} apart"
    return describe(figure, f"The losses of {first} and {second} over {len(one)} steps: {same}.")


def ease_and_control(ways: Mapping[str, tuple[int, int]]) -> Figure:
    """Return the picture of ways to train by statements the user writes, in all and in the step.

    `ways` maps a name to (statements in all, statements of the training step among them).
    Raises ValueError for no way, less than 1 in all or below 0 in the step.
    """
    if not ways or any(written < 1 or own < 0 for written, own in ways.values()):
        raise ValueError(f"need at least 1 statement in all and 0 in the step, got {dict(ways)}")
    figure, axis = new_figure(7.5, 3.8)
    colors = (COLORS["row"], COLORS["line"], COLORS["second"])
    for (name, (written, own)), color, marker in zip(ways.items(), colors, "so^", strict=False):
        axis.scatter(own, written, s=130, color=color, marker=marker, zorder=3)
        axis.annotate(
            f"{name}: {written} statements,\n{own} of them in the step",
            (own, written),
            xytext=(0, 12),
            textcoords="offset points",
            ha="center",
        )
    most = max(own for _, own in ways.values())
    longest = max(written for written, _ in ways.values())
    axis.set(xlim=(-0.45 * most - 1, 1.45 * most + 1), ylim=(1.3 * longest, 0))  # fewer is higher
    axis.set_xlabel("statements of the training step in your code  \u2192  customisability")
    axis.set_ylabel("statements you write\n(fewer is higher)  \u2192  ease of use")
    axis.set_xticks(sorted({own for _, own in ways.values()}))
    words = "; ".join(
        f"{name}: {written} statements written, {own} of them in the training step"
        for name, (written, own) in ways.items()
    )
    return describe(figure, f"{words}. Fewer statements stand higher, more control further right.")
