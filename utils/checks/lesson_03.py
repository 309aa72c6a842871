"""Checks of lesson 03: metrics, schedule, number of steps, parameter groups."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import nn
from transformers import DistilBertConfig, DistilBertForSequenceClassification, EvalPrediction

from utils import metrics
from utils.checks.core import (
    Case,
    Misconception,
    Wrong,
    check_function,
    exercise,
    require_attempt,
)
from utils.training import update_steps


def _counts(scores, labels) -> tuple[int, int, int, int]:
    """Return true and false positives, false and true negatives of label 1."""
    predicted, true = np.array(scores).argmax(axis=1), np.array(labels)
    pairs = [(p == 1, t == 1) for p, t in zip(predicted, true, strict=True)]
    kinds = ((True, True), (True, False), (False, True), (False, False))
    return tuple(pairs.count(kind) for kind in kinds)


def _measured(scores, labels) -> dict[str, float]:
    predicted = np.array(scores).argmax(axis=1)
    return {
        "accuracy": metrics.accuracy(predicted, labels),
        "f1": metrics.f1(predicted, labels),
    }


def _with_f1(f1: Callable) -> Callable:
    """Return the metrics with another F1, computed from the four counts."""

    def measured(scores, labels):
        return {**_measured(scores, labels), "f1": f1(*_counts(scores, labels))}

    return measured


_PREDICTIONS = {
    "five sentences": ([[2, 1], [0, 3], [-1, 1], [1, -2], [3, 4]], [0, 1, 0, 1, 1]),
    "scores that are all negative": ([[-5, -1], [-1, -4], [-2, -3], [-9, -8]], [1, 0, 1, 0]),
    "three sentences of label 0, one of label 1": ([[1, 3], [4, 2], [5, 1], [0, 2]], [0, 0, 0, 1]),
    "seven sentences, the model always says 1": ([[0, 1]] * 7, [1, 0, 1, 1, 0, 1, 1]),
    "only label 0, always predicted": ([[1, 0]] * 3, [0, 0, 0]),
    "label 1 is never predicted": ([[1, 0]] * 4, [0, 1, 1, 0]),
}


@exercise("3.1")
def compute_metrics(answer) -> str:
    """Check `compute_metrics(evaluation)`: accuracy and F1 of label 1 from scores and labels."""
    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")
    changed = []

    def on_arrays(scores, labels):
        predictions, label_ids = np.array(scores, dtype=np.float32), np.array(labels)
        found = answer(EvalPrediction(predictions=predictions, label_ids=label_ids))
        if not np.array_equal(predictions, scores) or not np.array_equal(label_ids, labels):
            changed.append(True)
        if isinstance(found, Mapping):  # NumPy's numbers count as numbers
            return {key: v.item() if hasattr(v, "item") else v for key, v in found.items()}
        return found

    def axis_0(scores, labels):
        predicted = np.array(scores).argmax(axis=0)
        hits = [predicted[i] == labels[i] for i in range(min(len(predicted), len(labels)))]
        return {"accuracy": float(np.mean(hits)), "f1": 0.0}

    def above_zero(scores, labels):
        predicted = (np.array(scores)[:, 1] > 0).astype(int)
        return {
            "accuracy": metrics.accuracy(predicted, labels),
            "f1": metrics.f1(predicted, labels),
        }

    def scaled(factor, **others):
        return lambda scores, labels: {
            **_measured(scores, labels),
            "accuracy": _measured(scores, labels)["accuracy"] * (factor or len(labels)),
        }

    misconceptions = [
        Misconception(
            above_zero, "you took a positive score for label 1; the larger of the two scores wins."
        ),
        Misconception(axis_0, "argmax runs over the wrong axis: each row is one sentence."),
        Misconception(
            _with_f1(lambda tp, fp, fn, tn: 2 * tn / (2 * tn + fp + fn) if tn else 0.0),
            "this is the F1 of label 0; label 1 is asked for.",
        ),
        Misconception(
            _with_f1(lambda tp, fp, fn, tn: tp / (tp + fp) if tp else 0.0),
            "your F1 is the precision: it counts the false positives only.",
        ),
        Misconception(
            _with_f1(lambda tp, fp, fn, tn: tp / (tp + fn) if tp else 0.0),
            "your F1 is the recall: it counts the false negatives only.",
        ),
        Misconception(
            _with_f1(lambda tp, fp, fn, tn: tp / (tp + fp + fn) if tp else 0.0),
            "in F1 a true positive counts twice, above and below the line.",
        ),
        Misconception(
            _with_f1(
                lambda tp, fp, fn, tn: (
                    (
                        (2 * tp / (2 * tp + fp + fn) if tp else 0.0)
                        + (2 * tn / (2 * tn + fp + fn) if tn else 0.0)
                    )
                    / 2
                )
            ),
            "you averaged the F1 of both labels (macro F1); F1 of label 1 is asked for.",
        ),
        Misconception(
            lambda scores, labels: {
                **_measured(scores, labels),
                "f1": _measured(scores, labels)["accuracy"],
            },
            "your F1 is the accuracy: true negatives do not count in F1.",
        ),
        Misconception(scaled(100), "the accuracy is a share between 0 and 1, not a percentage."),
        Misconception(scaled(0), "you counted the right ones; divide by the number of sentences."),
    ]
    praise = check_function(
        on_arrays,
        _measured,
        [Case(label, arguments) for label, arguments in _PREDICTIONS.items()],
        misconceptions,
        error_hints={"division": "without a true positive F1 is 0.0: test for it first."},
    )
    if changed:
        raise Wrong("The values are right, but your function changed the arrays: only read them.")
    return praise


def _rate(step: int, peak: float, warmup: int, total: int) -> float:
    if step < warmup:
        return peak * step / warmup
    return peak * (total - step) / (total - warmup)


@exercise("3.2")
def learning_rate_at(answer) -> str:
    """Check `learning_rate_at(step, peak, warmup, total)`: linear warm-up, then linear decay."""
    cases = [
        Case(f"step={step}, peak={peak}, warmup={warmup}, total={total}", arguments)
        for arguments in (
            (0, 0.001, 10, 100),
            (3, 0.001, 10, 100),
            (10, 0.001, 10, 100),
            (40, 0.003, 10, 130),
            (130, 0.003, 10, 130),
            (0, 0.5, 0, 8),
            (6, 0.5, 0, 8),
            (6, 0.5, 7, 8),
        )
        for step, peak, warmup, total in [arguments]
    ]
    misconceptions = [
        Misconception(
            lambda step, peak, warmup, total: peak * (total - step) / total,
            "the warm-up is missing: the rate climbs from 0 first.",
        ),
        Misconception(
            lambda step, peak, warmup, total: (
                peak * step / warmup if step < warmup else peak * (total - step) / total
            ),
            "after the warm-up the rate should start at the peak: divide by the steps that remain "
            "after the warm-up.",
        ),
        Misconception(
            lambda step, peak, warmup, total: peak * step / warmup if step < warmup else peak,
            "the rate stays at the peak; it should fall to 0.",
        ),
        Misconception(
            lambda step, peak, warmup, total: (
                peak * (step + 1) / warmup
                if step < warmup
                else peak * (total - step) / (total - warmup)
            ),
            "steps count from 0: the first rate is 0.",
        ),
        Misconception(
            lambda step, peak, warmup, total: (
                peak * step / warmup if step < warmup else peak * (step - warmup) / (total - warmup)
            ),
            "after the warm-up your rate climbs; use the steps that are left.",
        ),
        Misconception(
            lambda step, peak, warmup, total: (
                peak * step / total if step < warmup else peak * (total - step) / (total - warmup)
            ),
            "during the warm-up divide by its own length, not by all steps.",
        ),
    ]
    return check_function(
        answer,
        _rate,
        cases,
        misconceptions,
        error_hints={"division": "with warmup=0 there is no warm-up: do not divide by it."},
    )


@exercise("3.3")
def training_steps(answer) -> str:
    """Check `training_steps(examples, batch_size, accumulation, epochs)`: optimizer steps."""
    cases = [
        Case(f"{n:,} examples, batch size {b}, accumulation {k}, {e} epochs", (n, b, k, e))
        for n, b, k, e in (
            (9000, 32, 1, 3),
            (1000, 32, 1, 2),
            (1000, 32, 5, 3),
            (10, 4, 4, 2),
            (64, 8, 2, 1),
            (7, 100, 3, 4),
        )
    ]

    def batches(n, b):
        return math.ceil(n / b)

    misconceptions = [
        Misconception(
            lambda n, b, k, e: e * (n // b // k),
            "you rounded down: an incomplete batch or group makes a step, too.",
        ),
        Misconception(
            lambda n, b, k, e: e * (batches(n, b) // k),
            "you dropped the incomplete group of batches; it makes a step, too.",
        ),
        Misconception(
            lambda n, b, k, e: e * math.ceil(n // b / k),
            "you dropped the incomplete batch; it is trained on, too.",
        ),
        Misconception(
            lambda n, b, k, e: math.ceil(math.ceil(e * n / b) / k),
            "you let batches run over the end of an epoch: round up within one epoch.",
        ),
        Misconception(
            lambda n, b, k, e: math.ceil(e * batches(n, b) / k),
            "you let groups run over the end of an epoch: round up within one epoch.",
        ),
        Misconception(
            lambda n, b, k, e: e * batches(n, b),
            "these are batches; with accumulation several of them make one step.",
        ),
        Misconception(lambda n, b, k, e: e * n / b / k, "a number of steps is a whole number."),
        Misconception(lambda n, b, k, e: math.ceil(batches(n, b) / k), "that is one epoch."),
        Misconception(
            lambda n, b, k, e: e * batches(n, b) * k,
            "accumulation makes fewer steps, not more: divide by it.",
        ),
    ]
    return check_function(
        answer, lambda n, b, k, e: update_steps(n, b, e, k), cases, misconceptions
    )


class _Block(nn.Module):
    """A layer whose LayerNorm is called `norm`, and a bias that is not called `bias`'s layer."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3)
        self.unbiased = nn.Linear(3, width, bias=False)  # its name holds "bias"


def _distilbert() -> nn.Module:
    config = DistilBertConfig(vocab_size=11, dim=4, hidden_dim=6, n_layers=1, n_heads=2)
    return DistilBertForSequenceClassification(config)


def _frozen() -> nn.Module:
    model = nn.Sequential(nn.Embedding(7, 4), _Block(4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    model[1].norm.bias.requires_grad_(False)
    return model


def _bert_names() -> nn.Module:
    return nn.ModuleDict({"dense": nn.Linear(3, 5), "LayerNorm": nn.LayerNorm(5)})


_MODELS = {
    "a module with a Linear and a LayerNorm, named as in BERT": _bert_names,
    "a layer whose LayerNorm is called `norm`": lambda: _Block(4),
    "DistilBERT with one layer": _distilbert,
    "three layers, partly frozen": _frozen,
}


def _split(keep_decay: Callable, only_trainable: bool = True) -> Callable:
    """Return the split of names by `keep_decay(model, name, parameter)`, as the check compares."""

    def groups(label, weight_decay):
        model = _MODELS[label]()
        decayed, spared = [], []
        for name, parameter in model.named_parameters():
            if parameter.requires_grad or not only_trainable:
                (decayed if keep_decay(model, name, parameter) else spared).append(name)
        return [
            {"params": sorted(decayed), "weight_decay": weight_decay},
            {"params": sorted(spared), "weight_decay": 0.0},
        ]

    return groups


def _in_norm(model: nn.Module, parameter: nn.Parameter) -> bool:
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    return any(parameter is own for norm in norms for own in norm.parameters())


def _decays(model: nn.Module, name: str, parameter: nn.Parameter) -> bool:
    return name.rpartition(".")[2] != "bias" and not _in_norm(model, parameter)


def _named_groups(groups, model: nn.Module) -> list[dict]:
    """Return `groups` with parameter names in place of parameters; raise `Wrong` for others."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    if not isinstance(groups, Sequence) or not all(isinstance(g, Mapping) for g in groups):
        raise Wrong("A list of two dictionaries is expected.")
    named = []
    for group in groups:
        if set(group) != {"params", "weight_decay"}:
            raise Wrong(
                "Each dictionary should have the keys 'params' and 'weight_decay'; yours has "
                f"{sorted(map(str, group))}."
            )
        members = list(group["params"])
        if any(id(member) not in names for member in members):
            raise Wrong(
                "'params' should hold the model's own parameters; yours holds something else, "
                f"of type {type(members[0]).__name__}. named_parameters() gives (name, parameter)."
            )
        named.append({**group, "params": sorted(names[id(member)] for member in members)})
    return named


@exercise("3.4")
def parameter_groups(answer) -> str:
    """Check `parameter_groups(model, weight_decay)`: biases and LayerNorm without decay."""
    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")
    problems = []

    def on_model(label, weight_decay):
        model = _MODELS[label]()
        before = copy.deepcopy(model.state_dict())
        groups = answer(model, weight_decay)
        if groups is None:
            return None
        try:
            named = _named_groups(groups, model)
        except Wrong as wrong:
            problems.append(wrong)
            raise
        if any(not torch.equal(before[name], v) for name, v in model.state_dict().items()):
            problems.append(Wrong("Your function changed the model's weights: only sort them."))
        return named

    misconceptions = [
        Misconception(
            _split(_decays, only_trainable=False),
            "frozen parameters are in the groups: leave out what does not require a gradient.",
        ),
        Misconception(
            _split(lambda model, name, p: name.rpartition(".")[2] != "bias"),
            "LayerNorm's weights are decayed; its bias alone is not enough.",
        ),
        Misconception(
            _split(lambda model, name, p: "bias" not in name and "LayerNorm" not in name),
            "you looked for the names `bias` and `LayerNorm`; a model may call its LayerNorm "
            "otherwise, and a matrix may have `bias` in its name. Ask for the module's class.",
        ),
        Misconception(
            _split(
                lambda model, name, p: name.rpartition(".")[2] != "bias" and "LayerNorm" not in name
            ),
            "you looked for the name `LayerNorm`; a model may call its LayerNorm otherwise. Ask for "
            "the module's class.",
        ),
        Misconception(
            _split(
                lambda model, name, p: (
                    name.rpartition(".")[2] != "bias" and "norm" not in name.lower()
                )
            ),
            "going by the name `norm` works for these models and not for all.",
        ),
        Misconception(
            _split(lambda model, name, p: not _in_norm(model, p)),
            "the biases of the other layers are decayed.",
        ),
        Misconception(_split(lambda model, name, p: True), "nothing is left out of the decay."),
        Misconception(
            lambda label, weight_decay: _split(_decays)(label, weight_decay)[::-1],
            "the groups are in the wrong order: the decayed one comes first.",
        ),
        Misconception(
            _split(lambda model, name, p: not _decays(model, name, p)),
            "matrices are spared and the others decayed: it should be the other way round.",
        ),
        Misconception(
            lambda label, weight_decay: [
                {**group, "weight_decay": weight_decay}
                for group in _split(_decays)(label, weight_decay)
            ],
            "the second group should have weight_decay=0.0.",
        ),
        Misconception(
            lambda label, weight_decay: [
                {**group, "weight_decay": decay}
                for group, decay in zip(
                    _split(_decays)(label, weight_decay), (0.0, weight_decay), strict=True
                )
            ],
            "the two decays are swapped: the first group is the one that is decayed.",
        ),
    ]
    cases = [Case(f"{label}, weight_decay=0.1", (label, 0.1)) for label in _MODELS]
    try:
        praise = check_function(on_model, _split(_decays), cases, misconceptions)
    except Wrong:
        if problems:
            raise problems[0] from None
        raise
    if problems:
        raise problems[0]
    return praise
