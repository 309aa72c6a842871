"""The checks of lesson 02: solution, blank, a second right answer and plausible wrong ones."""

import pytest
import torch

from tests.exercises import assert_verdict, blank, solution
from utils.checks import lesson_02 as checks
from utils.checks.core import NOT_ATTEMPTED, RIGHT, WRONG

LESSON, MIB = "02_adamw_memory", 1024**2
GIVEN = {"torch": torch}
WEIGHTS = 768 * 512 + 512 + 512 * 2


def own_trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


def size_by_bytes(states):
    tensors = [torch.as_tensor(v) for s in states for v in s.values()]
    return sum(t.nbytes for t in tensors) / MIB, sum(t.numel() for t in tensors)


def count_by_identity(model):
    named = model.named_parameters(remove_duplicate=False)
    return sum({id(p): p.numel() for _, p in named if p.requires_grad}.values())


def state_by_loop(model):
    total = 0
    for parameter in own_trainable(model):
        total += parameter.nbytes + parameter.nbytes + 4
    return total


def bill_by_loop(model):
    weights = sum(p.nbytes for p in model.parameters())
    gradients = sum(p.nbytes for p in own_trainable(model))
    state = state_by_loop(model)
    total = weights + gradients + state
    return {"total": total, "optimizer": state, "gradients": gradients, "weights": weights}


SECOND_ANSWERS = {
    "estimate_mib": lambda n: n / (MIB / 8),
    "predicted": [2 * WEIGHTS + 3, 3.01],
    "compute_optimizer_size": size_by_bytes,
    "count_trainable": count_by_identity,
    "adamw_state_bytes": state_by_loop,
    "training_bill": bill_by_loop,
}


@pytest.mark.parametrize("name", SECOND_ANSWERS)
def test_solution_blank_and_a_second_right_answer(name):
    check = getattr(checks, name)
    assert_verdict(check, solution(LESSON, name, **GIVEN), RIGHT)
    assert_verdict(check, blank(LESSON, name, **GIVEN), NOT_ATTEMPTED)
    assert_verdict(check, SECOND_ANSWERS[name], RIGHT)


def changes_the_model(model):
    model.requires_grad_(True)
    return 8 * sum(p.numel() for p in model.parameters())


def counts_then_changes(model):
    count = count_by_identity(model)
    model.requires_grad_(False)
    return count


def numbers(parameters):
    return sum(p.numel() for p in parameters)


def all_names(model):
    return [p for _, p in model.named_parameters(remove_duplicate=False)]


def with_item(**changes):
    def bill(model):
        items = {**bill_by_loop(model), **{k: f(model) for k, f in changes.items()}}
        if "total" not in changes:
            items["total"] = items["weights"] + items["gradients"] + items["optimizer"]
        return items

    return bill


WRONG_ANSWERS = [
    ("estimate_mib", lambda n: n * 8, "that is in bytes"),
    ("estimate_mib", lambda n: n * 8 / 10**6, "gives MB"),
    ("estimate_mib", lambda n: n * 8 / 1024, "KiB"),
    ("estimate_mib", lambda n: n * 8 / 1024**3, "GiB"),
    ("estimate_mib", lambda n: n * 4 / MIB, "one moment"),
    ("estimate_mib", lambda n: n * 16 / MIB, "weights and gradients too"),
    ("estimate_mib", lambda n: round(n * 8 / MIB), "you rounded"),
    ("estimate_mib", lambda n: 502.0, "Case: num_parameters=131,072"),
    ("predicted", (2 * WEIGHTS, 3.0), "forgot the step counters"),
    ("predicted", (2 * WEIGHTS + 2, 3.0), "one a tensor"),
    ("predicted", (WEIGHTS, 1.5), "two moments for each"),
    ("predicted", (2 * WEIGHTS + 3, (2 * WEIGHTS + 3) * 4 / 10**6), "in MB"),
    ("predicted", (2 * WEIGHTS + 3, (2 * WEIGHTS + 3) * 4), "in bytes"),
    ("predicted", (2 * WEIGHTS + 3, 1.505), "one moment"),
    ("predicted", 2 * WEIGHTS + 3, "A pair is expected"),
    ("predicted", (3.01, 2 * WEIGHTS + 3), "Elements."),
    ("compute_optimizer_size", lambda s: size_by_bytes(s)[::-1], "wrong order"),
    ("compute_optimizer_size", lambda s: (size_by_bytes(s)[0] * MIB, size_by_bytes(s)[1]), "bytes"),
    (
        "compute_optimizer_size",
        lambda s: (size_by_bytes(s)[0] * MIB / 10**6, size_by_bytes(s)[1]),
        "in MB",
    ),
    (
        "compute_optimizer_size",
        lambda s: (size_by_bytes(s)[1] * 4 / MIB, size_by_bytes(s)[1]),
        "4 bytes for every element",
    ),
    (
        "compute_optimizer_size",
        lambda s: size_by_bytes([{k: v for k, v in d.items() if k != "step"} for d in s]),
        "left out the step",
    ),
    (
        "compute_optimizer_size",
        lambda s: size_by_bytes([{k: v for k, v in d.items() if torch.is_tensor(v)} for d in s]),
        "not a tensor",
    ),
    (
        "compute_optimizer_size",
        lambda s: size_by_bytes([{k: v for k, v in d.items() if k != "exp_avg_sq"} for d in s]),
        "one moment",
    ),
    ("compute_optimizer_size", lambda s: size_by_bytes(s[:1]), "first parameter only"),
    ("compute_optimizer_size", lambda s: size_by_bytes(s[-1:]), "last parameter only"),
    ("compute_optimizer_size", lambda s: size_by_bytes(s)[0], "2 values are expected"),
    (
        "compute_optimizer_size",
        lambda s: (size_by_bytes(s), [d.clear() for d in s])[0],
        "changed its argument",
    ),
    ("count_trainable", lambda m: numbers(m.parameters()), "counted frozen"),
    ("count_trainable", lambda m: numbers(p for p in all_names(m) if p.requires_grad), "twice"),
    ("count_trainable", lambda m: numbers(m.state_dict().values()), "state_dict"),
    ("count_trainable", lambda m: len(own_trainable(m)), "counted tensors"),
    ("count_trainable", lambda m: sum(p.nbytes for p in own_trainable(m)), "these are bytes"),
    ("count_trainable", counts_then_changes, "changed the model"),
    (
        "adamw_state_bytes",
        lambda m: sum(2 * p.nbytes + 4 for p in m.parameters()),
        "counted frozen parameters",
    ),
    ("adamw_state_bytes", lambda m: 2 * sum(p.nbytes for p in own_trainable(m)), "step counters"),
    (
        "adamw_state_bytes",
        lambda m: sum(8 * p.numel() + 4 for p in own_trainable(m)),
        "4 bytes for every number",
    ),
    ("adamw_state_bytes", lambda m: sum(p.nbytes + 4 for p in own_trainable(m)), "one moment"),
    ("adamw_state_bytes", lambda m: state_by_loop(m) / MIB, "in MiB"),
    (
        "adamw_state_bytes",
        lambda m: sum(2 * p.nbytes + 4 for p in all_names(m) if p.requires_grad),
        "twice",
    ),
    ("adamw_state_bytes", changes_the_model, "Case: nn.Linear(13, 7)"),
    (
        "training_bill",
        with_item(gradients=lambda m: sum(p.nbytes for p in m.parameters())),
        "no gradient",
    ),
    (
        "training_bill",
        with_item(weights=lambda m: sum(p.nbytes for p in own_trainable(m))),
        "still hold their weights",
    ),
    ("training_bill", with_item(gradients=lambda m: 0), "the gradients are missing"),
    (
        "training_bill",
        with_item(optimizer=lambda m: sum(p.nbytes + 4 for p in own_trainable(m))),
        "two moments",
    ),
    (
        "training_bill",
        with_item(optimizer=lambda m: 2 * sum(p.nbytes for p in own_trainable(m))),
        "step counters are missing",
    ),
    (
        "training_bill",
        with_item(total=lambda m: bill_by_loop(m)["weights"] + bill_by_loop(m)["gradients"]),
        "leaves the optimizer's state out",
    ),
    ("training_bill", lambda m: {"total": bill_by_loop(m)["total"]}, "The keys should be"),
]


@pytest.mark.parametrize(
    ("name", "answer", "hint"),
    WRONG_ANSWERS,
    ids=[f"{name}-{hint[:20]}" for name, _, hint in WRONG_ANSWERS],
)
def test_wrong_answer_is_rejected_with_its_hint(name, answer, hint):
    assert_verdict(getattr(checks, name), answer, WRONG, hint)


def test_prediction_is_true_of_a_real_optimizer():
    layers = (torch.nn.Linear(768, 512), torch.nn.Linear(512, 2, bias=False))
    states = checks.stepped_state(torch.nn.Sequential(*layers).parameters())
    size, elements = size_by_bytes(states)
    assert solution(LESSON, "predicted", **GIVEN) == (elements, size)
