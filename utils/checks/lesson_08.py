"""Checks of lesson 08: is it a difference, the largest model that fits, training within a budget."""

import functools
import statistics

import torch

from utils import data, models, training
from utils.checks.core import (
    Case,
    Misconception,
    NotAttempted,
    Wrong,
    check_function,
    exercise,
    require_attempt,
)
from utils.memory import GIB, measure_optimizer_state

BUDGET, GOAL = 1_000_000, 0.70  # bytes of state, validation accuracy


def _clear(
    spread=lambda a: statistics.variance(a),
    error=lambda va, vb, na, nb: (va / na + vb / nb) ** 0.5,
    gap=lambda a, b: abs(statistics.mean(a) - statistics.mean(b)),
    factor=2.0,
):
    def answer(a, b):
        return bool(gap(a, b) > factor * error(spread(a), spread(b), len(a), len(b)))

    return answer


def difference_cases() -> list[Case]:
    """Return the pairs of accuracies on which `clear_difference` is tried."""
    pairs = {
        "far apart": ([0.90, 0.91, 0.92], [0.80, 0.81, 0.82]),
        "far apart, the second is better": ([0.80, 0.81, 0.82], [0.90, 0.91, 0.92]),
        "the same numbers": ([0.80, 0.82, 0.84], [0.80, 0.82, 0.84]),
        "means 0.01 apart, wide spread": ([0.75, 0.80, 0.85], [0.76, 0.81, 0.86]),
        "one lucky seed": ([0.80, 0.80, 0.95], [0.80, 0.81, 0.80]),
        "small but steady": ([0.800, 0.801, 0.802], [0.806, 0.807, 0.808]),
        "5 seeds against 3": ([0.80, 0.82, 0.84, 0.80, 0.84], [0.84, 0.85, 0.86]),
        "2 seeds against 6": ([0.70, 0.74], [0.75, 0.76, 0.77, 0.75, 0.76, 0.77]),
        "just not clear": ([0.80, 0.82, 0.84], [0.83, 0.85, 0.87]),
        "a little more than one standard error": ([0.80, 0.82, 0.84], [0.821, 0.841, 0.861]),
        "almost the same": ([0.80, 0.82, 0.84], [0.8002, 0.8202, 0.8402]),
        "between 1.6 and 2 standard errors": ([0.10, 0.20, 0.30], [0.27, 0.37, 0.47]),
    }
    return [Case(f"{label}: {a} and {b}", (a, b)) for label, (a, b) in pairs.items()]


@exercise("8.1")
def clear_difference(answer) -> str:
    """Check `clear_difference(a, b)`: means further apart than twice the standard error of both."""
    misconceptions = [
        Misconception(
            _clear(gap=lambda a, b: statistics.mean(a) - statistics.mean(b)),
            "the second can be the better one: take the absolute difference.",
        ),
        Misconception(
            _clear(spread=statistics.pvariance),
            "with few seeds the sample variance counts: divide by n - 1 (statistics.variance).",
        ),
        Misconception(
            _clear(spread=statistics.stdev),
            "you divided the standard deviation by n; it is the variance that is divided.",
        ),
        Misconception(
            _clear(error=lambda va, vb, na, nb: va / na + vb / nb),
            "the root is missing: a standard error is the root of variances.",
        ),
        Misconception(
            _clear(error=lambda va, vb, na, nb: (va + vb) ** 0.5),
            "each variance is divided by its number of seeds.",
        ),
        Misconception(
            _clear(error=lambda va, vb, na, nb: (va / na) ** 0.5),
            "both spreads count; you took the first only.",
        ),
        Misconception(_clear(factor=1.0), "the difference must exceed twice the standard error."),
        Misconception(_clear(factor=0.0), "any two runs differ; compare with their spread."),
        Misconception(
            lambda a, b: min(a) > max(b) or min(b) > max(a),
            "that asks whether all runs of one beat all of the other; use means and their error.",
        ),
    ]
    return check_function(
        answer, _clear(), difference_cases(), misconceptions, hint_fits_every_case=True
    )


def _largest(
    per=lambda weight, state: 2 * weight + state,
    unit=GIB,
    room=lambda device, allowance: device - allowance,
    finish=lambda ratio: int(ratio),
):
    def answer(device_gib, weight_bytes, state_bytes, allowance_gib):
        return finish(room(device_gib, allowance_gib) * unit / per(weight_bytes, state_bytes))

    return answer


@exercise("8.2")
def largest_model(answer) -> str:
    """Check `largest_model(device_gib, weight_bytes, state_bytes, allowance_gib)`: parameters."""
    cases = [
        Case("24 GiB, AdamW in FP32, 4 GiB allowance", (24, 4, 8, 4)),
        Case("24 GiB, AdamW in BF16, no allowance", (24, 2, 4, 0)),
        Case("80 GiB, 8-bit in BF16, 10 GiB allowance", (80, 2, 2.04, 10)),
        Case("80 GiB, Adafactor in BF16, 7 GiB allowance", (80, 2, 0.002, 7)),
        Case("12 GiB, AdamW in FP32, 1 GiB allowance", (12, 4, 8, 1)),
    ]
    misconceptions = [
        Misconception(
            _largest(per=lambda w, s: w + s), "gradients need as many bytes as the weights."
        ),
        Misconception(_largest(per=lambda w, s: s), "weights and gradients have to fit as well."),
        Misconception(_largest(unit=10**9), "a GiB is 1024**3 bytes, not 10**9."),
        Misconception(
            _largest(room=lambda device, allowance: device), "the allowance is taken off first."
        ),
        Misconception(
            _largest(room=lambda device, allowance: device + allowance),
            "the allowance is taken off, not added.",
        ),
        Misconception(
            _largest(per=lambda w, s: 2 * w + 2 * s),
            "state_bytes is the whole state of a parameter: both moments are in it.",
        ),
        Misconception(_largest(unit=1), "turn GiB into bytes first."),
        Misconception(
            _largest(finish=lambda ratio: int(ratio) + 1),
            "one parameter too many: round down.",
        ),
        Misconception(
            _largest(finish=lambda ratio: ratio / 1e9), "count parameters, not billions."
        ),
    ]

    def as_number(*args):
        got = answer(*args)
        if isinstance(got, float) and not got.is_integer() and got > 1000:
            raise ValueError(f"got {got!r}, but a model has a whole number of parameters")
        return got

    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")
    return check_function(
        as_number,
        _largest(),
        cases,
        misconceptions,
        tolerance=1e-12,
        error_hints={"whole number of parameters": "round down: `int(...)` or `//`."},
    )


@functools.cache
def _task():
    reviews, tokenizer = data.load(), models.load_tokenizer()
    return data.tokenize(reviews, tokenizer), tokenizer


def new_model():
    """Return the capstone's model: the small DistilBERT, the same for everybody."""
    return models.load_model(seed=0)


@exercise("8.3")
def capstone(answer) -> str:
    """Check `make_optimizer(model)`: one epoch within the budget, and better than the goal."""
    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")
    tokenized, tokenizer = _task()

    def make(model):
        try:
            optimizer = answer(model)
        except NotImplementedError:
            raise NotAttempted from None
        except Exception as error:
            raise Wrong(f"Your function raised {type(error).__name__}: {error}") from None
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise Wrong(f"An optimizer is expected; yours is {type(optimizer).__name__}.")
        return optimizer

    def trained(model, steps=None):
        train, settings = tokenized["train"], training.Settings(epochs=1)
        try:
            return training.train(model, make, train, tokenizer, settings, max_steps=steps)[0]
        except Wrong:
            raise
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            raise Wrong(f"Training raised {type(error).__name__}: {error}") from None

    # The state is there after one step: whoever is over the budget need not wait for an epoch.
    _within(measure_optimizer_state(trained(new_model(), 1)).bytes)
    model = new_model()
    num_bytes = measure_optimizer_state(trained(model)).bytes
    _within(num_bytes)
    accuracy = training.evaluate(model, tokenized["validation"], tokenizer)["accuracy"]
    if not accuracy >= GOAL:
        raise Wrong(
            f"The state takes {num_bytes:,} bytes: within the budget. But the accuracy is "
            f"{accuracy:.2f}, and {GOAL:.2f} is the goal.\nLikely cause: the learning rate. "
            "torch.optim.Adafactor multiplies it by the weights' size (lesson 06), SGD needs a "
            "much larger one than Adam. If you froze parameters, perhaps too many."
        )
    return f"{num_bytes:,} bytes of {BUDGET:,}, and an accuracy above {GOAL:.2f}."


def _within(num_bytes: int) -> None:
    if num_bytes > BUDGET:
        raise Wrong(
            f"The state takes {num_bytes:,} bytes, the budget is {BUDGET:,}.\nStore fewer numbers, "
            "or fewer bits for each, or train fewer parameters."
        )
