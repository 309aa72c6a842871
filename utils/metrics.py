"""Accuracy and F1 as `evaluate.Metric`s that need no hub.

`evaluate.load("accuracy")` fetches its code from the hub; these two are the same measures, here.
"""

from collections.abc import Sequence

import datasets
import evaluate
import numpy as np

_FEATURES = datasets.Features(
    {"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}
)


def accuracy(predictions: Sequence[int], references: Sequence[int]) -> float:
    """Return the share of predictions that equal their reference.

    Raises: ValueError if there are none, or not as many of the one as of the other.
    """
    predicted, true = _pair(predictions, references)
    return float((predicted == true).mean())


def f1(predictions: Sequence[int], references: Sequence[int], positive: int = 1) -> float:
    """Return F1 of the class `positive`: 2 TP / (2 TP + FP + FN).

    It is the harmonic mean of precision, TP / (TP + FP), and recall, TP / (TP + FN). Where nothing
    is positive in either, the quotient is 0 / 0; the answer is then 0.0, as scikit-learn's default.
    Raises: ValueError as `accuracy` does.
    """
    predicted, true = _pair(predictions, references)
    hits = int(((predicted == positive) & (true == positive)).sum())
    misses = int(((predicted == positive) != (true == positive)).sum())
    return 2 * hits / (2 * hits + misses) if hits else 0.0


def _pair(predictions, references) -> tuple[np.ndarray, np.ndarray]:
    predicted, true = np.asarray(predictions), np.asarray(references)
    if predicted.shape != true.shape or predicted.ndim != 1:
        raise ValueError(
            "predictions and references must be two lists of one length, got shapes "
            f"{predicted.shape} and {true.shape}"
        )
    if not predicted.size:
        raise ValueError("predictions and references are empty: there is nothing to measure")
    return predicted, true


def _info(description: str) -> evaluate.MetricInfo:
    return evaluate.MetricInfo(description=description, citation="", features=_FEATURES)


class Accuracy(evaluate.Metric):
    """`evaluate`'s interface to `accuracy`: `compute`, `add_batch`, `evaluate.combine`."""

    def _info(self):
        return _info("The share of predictions that equal their reference.")

    def _compute(self, predictions, references):
        return {"accuracy": accuracy(predictions, references)}


class F1(evaluate.Metric):
    """`evaluate`'s interface to `f1` of class 1: `compute`, `add_batch`, `evaluate.combine`."""

    def _info(self):
        return _info("The harmonic mean of precision and recall of class 1.")

    def _compute(self, predictions, references):
        return {"f1": f1(predictions, references)}


def load() -> evaluate.CombinedEvaluations:
    """Return accuracy and F1 combined: `compute` gives {"accuracy": ..., "f1": ...}."""
    return evaluate.combine([Accuracy(), F1()])
