"""Accuracy and F1 equal scikit-learn's, and evaluate's interface works with no hub."""

import evaluate
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from utils import metrics

PAIRS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)


@given(PAIRS)
def test_equal_to_scikit_learn(pairs):
    predictions, references = map(list, zip(*pairs, strict=True))
    assert metrics.accuracy(predictions, references) == accuracy_score(references, predictions)
    expected = f1_score(
        [r == 1 for r in references], [p == 1 for p in predictions], zero_division=0.0
    )
    assert metrics.f1(predictions, references) == pytest.approx(expected, abs=1e-12)


def test_nothing_positive_gives_zero():
    assert metrics.f1([0, 0], [0, 0]) == 0.0
    assert metrics.f1([0, 0], [1, 1]) == 0.0
    assert metrics.f1([1, 1], [0, 0]) == 0.0


def test_another_positive_class():
    assert metrics.f1([2, 2, 1], [2, 1, 1], positive=2) == pytest.approx(2 / 3)


@pytest.mark.parametrize("pair", [([1], [1, 0]), ([], []), ([[1]], [[1]])])
@pytest.mark.parametrize("measure", [metrics.accuracy, metrics.f1])
def test_bad_input_is_named(measure, pair):
    with pytest.raises(ValueError, match="predictions and references"):
        measure(*pair)


def test_evaluate_interface_in_batches_and_combined():
    chance = np.random.default_rng(0)
    predictions, references = chance.integers(0, 2, (2, 50))
    combined = metrics.load()
    whole = combined.compute(predictions=predictions, references=references)
    for start in range(0, 50, 7):
        stop = start + 7
        combined.add_batch(predictions=predictions[start:stop], references=references[start:stop])
    assert combined.compute() == whole
    assert whole == {
        "accuracy": accuracy_score(references, predictions),
        "f1": pytest.approx(f1_score(references, predictions)),
    }
    assert isinstance(metrics.Accuracy(), evaluate.Metric)
