"""The checks of lesson 03: solution, blank, a second right answer and plausible wrong ones."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score
from transformers import Trainer, TrainingArguments, get_scheduler

from tests.exercises import assert_verdict, blank, solution
from utils.checks import lesson_03 as checks
from utils.checks.core import NOT_ATTEMPTED, RIGHT, WRONG

LESSON = "03_adamw_trainer"
GIVEN = {"np": np, "math": math, "torch": torch}


def by_scikit_learn(evaluation):
    predicted = np.argmax(evaluation.predictions, axis=-1)
    return {
        "f1": f1_score(evaluation.label_ids, predicted, zero_division=0.0),
        "accuracy": accuracy_score(evaluation.label_ids, predicted),
    }


def by_minimum(step, peak, warmup, total):
    rise = step / warmup if warmup else 1.0
    return peak * min(rise, (total - step) / (total - warmup))


def by_counting(examples, batch_size, accumulation, epochs):
    return epochs * len(range(0, examples, batch_size * accumulation))


def by_dimensions(model, weight_decay):
    trainable = [p for p in model.parameters() if p.requires_grad]
    return (
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0},
    )


SECOND_ANSWERS = {
    "compute_metrics": by_scikit_learn,
    "learning_rate_at": by_minimum,
    "training_steps": by_counting,
    "parameter_groups": by_dimensions,
}


@pytest.mark.parametrize("name", SECOND_ANSWERS)
def test_solution_blank_and_a_second_right_answer(name):
    check = getattr(checks, name)
    assert_verdict(check, solution(LESSON, name, **GIVEN), RIGHT)
    assert_verdict(check, blank(LESSON, name, **GIVEN), NOT_ATTEMPTED)
    assert_verdict(check, SECOND_ANSWERS[name], RIGHT)


def measured(f1=None, accuracy=None, predict=lambda scores: scores.argmax(axis=1)):
    def answer(evaluation):
        predicted, true = predict(evaluation.predictions), evaluation.label_ids
        tp = int(((predicted == 1) & (true == 1)).sum())
        fp = int(((predicted == 1) & (true == 0)).sum())
        fn = int(((predicted == 0) & (true == 1)).sum())
        tn = int(((predicted == 0) & (true == 0)).sum())
        return {
            "accuracy": accuracy(tp, fp, fn, tn) if accuracy else (tp + tn) / len(true),
            "f1": f1(tp, fp, fn, tn) if f1 else (2 * tp / (2 * tp + fp + fn) if tp else 0.0),
        }

    return answer


def overwrites(evaluation):
    found = by_scikit_learn(evaluation)
    evaluation.predictions[:] = 0
    return found


def groups(spare, decays=(None, 0.0), swap=False, all_of_them=False):
    def answer(model, weight_decay):
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad or all_of_them]
        parts = [[p for n, p in named if not spare(n, p)], [p for n, p in named if spare(n, p)]]
        values = [weight_decay if decay is None else decay for decay in decays]
        found = [
            {"params": part, "weight_decay": value}
            for part, value in zip(parts, values, strict=True)
        ]
        return found[::-1] if swap else found

    return answer


def forgets_to_return(model, weight_decay):
    by_dimensions(model, weight_decay)


WRONG_ANSWERS = [
    ("compute_metrics", measured(predict=lambda s: (s[:, 1] > 0).astype(int)), "larger of the two"),
    ("compute_metrics", measured(lambda tp, fp, fn, tn: tp / max(tp + fp, 1)), "precision"),
    ("compute_metrics", measured(lambda tp, fp, fn, tn: tp / max(tp + fn, 1)), "recall"),
    (
        "compute_metrics",
        measured(lambda tp, fp, fn, tn: 2 * tn / (2 * tn + fp + fn) if tn else 0.0),
        "F1 of label 0",
    ),
    (
        "compute_metrics",
        measured(lambda tp, fp, fn, tn: 2 * tp / (2 * tp + fp + fn)),
        "test for it",
    ),
    (
        "compute_metrics",
        measured(lambda tp, fp, fn, tn: (tp + tn) / (tp + fp + fn + tn)),
        "your F1 is the accuracy",
    ),
    (
        "compute_metrics",
        measured(accuracy=lambda tp, fp, fn, tn: 100 * (tp + tn) / (tp + fp + fn + tn)),
        "not a percentage",
    ),
    (
        "compute_metrics",
        measured(accuracy=lambda tp, fp, fn, tn: tp + tn),
        "divide by the number of sentences",
    ),
    (
        "compute_metrics",
        lambda e: {
            "accuracy": by_scikit_learn(e)["accuracy"],
            "f1": f1_score(e.label_ids, e.predictions.argmax(1), average="macro", zero_division=0),
        },
        "macro F1",
    ),
    ("compute_metrics", lambda e: by_scikit_learn(e)["accuracy"], "A dictionary is expected"),
    ("compute_metrics", lambda e: {"accuracy": 0.5}, "The keys should be"),
    ("compute_metrics", overwrites, "only read them"),
    ("learning_rate_at", lambda s, p, w, t: p * (t - s) / t, "warm-up is missing"),
    (
        "learning_rate_at",
        lambda s, p, w, t: p * s / w if s < w else p * (t - s) / t,
        "remain after the warm-up",
    ),
    ("learning_rate_at", lambda s, p, w, t: p * s / w if s < w else p, "stays at the peak"),
    (
        "learning_rate_at",
        lambda s, p, w, t: p * (s + 1) / w if s < w else p * (t - s) / (t - w),
        "count from 0",
    ),
    (
        "learning_rate_at",
        lambda s, p, w, t: p * min(s / w, (t - s) / (t - w)),
        "do not divide by it",
    ),
    ("training_steps", lambda n, b, k, e: e * (n // b) // k, "Case: 9,000 examples"),
    ("training_steps", lambda n, b, k, e: e * (n // b // k), "you rounded down"),
    (
        "training_steps",
        lambda n, b, k, e: e * (math.ceil(n / b) // k),
        "dropped the incomplete group",
    ),
    ("training_steps", lambda n, b, k, e: math.ceil(e * n / b / k), "over the end of an epoch"),
    ("training_steps", lambda n, b, k, e: e * math.ceil(n / b), "these are batches"),
    ("training_steps", lambda n, b, k, e: math.ceil(n / (b * k)), "that is one epoch"),
    (
        "parameter_groups",
        groups(lambda n, p: n.endswith("bias")),
        "LayerNorm's weights are decayed",
    ),
    (
        "parameter_groups",
        groups(lambda n, p: n.endswith("bias") or "LayerNorm" in n),
        "may call its LayerNorm otherwise",
    ),
    (
        "parameter_groups",
        groups(lambda n, p: "bias" in n or "LayerNorm" in n),
        "you looked for the names",
    ),
    ("parameter_groups", groups(lambda n, p: p.ndim < 2, all_of_them=True), "frozen"),
    ("parameter_groups", groups(lambda n, p: p.ndim < 2, swap=True), "wrong order"),
    ("parameter_groups", groups(lambda n, p: p.ndim < 2, decays=(None, None)), "weight_decay=0.0"),
    ("parameter_groups", groups(lambda n, p: p.ndim < 2, decays=(0.0, None)), "swapped"),
    ("parameter_groups", groups(lambda n, p: False), "nothing is left out"),
    (
        "parameter_groups",
        lambda m, d: [{"params": list(m.named_parameters()), "weight_decay": d}] * 2,
        "named_parameters() gives",
    ),
    ("parameter_groups", lambda m, d: list(m.parameters()), "list of two dictionaries"),
    ("parameter_groups", forgets_to_return, "return statement missing"),
]


@pytest.mark.parametrize(
    ("name", "answer", "hint"),
    WRONG_ANSWERS,
    ids=[f"{name}-{hint[:20]}" for name, _, hint in WRONG_ANSWERS],
)
def test_wrong_answer_is_rejected_with_its_hint(name, answer, hint):
    assert_verdict(getattr(checks, name), answer, WRONG, hint)


@pytest.mark.parametrize(("warmup", "total"), [(10, 100), (0, 8), (7, 8)])
def test_the_schedule_is_the_library_s(warmup, total):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scheduler = get_scheduler("linear", optimizer, warmup, total)
    rate = solution(LESSON, "learning_rate_at", **GIVEN)
    for step in range(total + 1):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate(step, 0.5, warmup, total))
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize(("examples", "batch_size", "accumulation"), [(10, 4, 4), (100, 8, 5)])
def test_the_number_of_steps_is_trainer_s(examples, batch_size, accumulation, tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x, labels=None):
            out = self.layer(x)
            return {"loss": (out - labels).square().mean(), "logits": out}

    args = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        num_train_epochs=2,
        disable_tqdm=True,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        dataloader_pin_memory=False,
    )
    rows = [{"x": torch.ones(1), "labels": torch.zeros(1)}] * examples
    steps = Trainer(Model(), args, train_dataset=rows).train().global_step
    assert steps == solution(LESSON, "training_steps", **GIVEN)(
        examples, batch_size, accumulation, 2
    )


def test_the_groups_are_trainer_s(tmp_path):
    model = checks._MODELS["DistilBERT with one layer"]()
    args = TrainingArguments(output_dir=str(tmp_path), weight_decay=0.1, report_to="none")
    theirs = Trainer(model, args).create_optimizer().param_groups
    ours = solution(LESSON, "parameter_groups", **GIVEN)(model, 0.1)
    for group, other in zip(theirs, ours, strict=True):
        assert {id(p) for p in group["params"]} == {id(p) for p in other["params"]}
        assert group["weight_decay"] == other["weight_decay"]
