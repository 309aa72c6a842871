"""The checks of lesson 01: solution, blank, a second right answer and plausible wrong ones."""

import math

import pytest
import torch

from tests.exercises import assert_verdict, blank, solution
from utils.checks import lesson_01 as checks
from utils.checks.core import NOT_ATTEMPTED, RIGHT, WRONG

LESSON = "01_adamw_ema"


def recursive_averages(values, beta):
    if not values:
        return []
    before = recursive_averages(values[:-1], beta)
    return [*before, (1 - beta) * values[-1] + beta * (before[-1] if before else 0)]


def explicit_corrected(values, beta):
    def corrected(until):
        shares = [beta ** (until - i) for i in range(until + 1)]
        return sum(s * v for s, v in zip(shares, values, strict=False)) / sum(shares)

    return tuple(corrected(t) for t in range(len(values)))


def direction_with_tensors(gradients, beta1, beta2):
    g = torch.tensor(gradients, dtype=torch.float64)
    ages = torch.arange(len(g) - 1, -1, -1, dtype=torch.float64)
    first, second = beta1**ages, beta2**ages
    return (first @ g / first.sum()) / torch.sqrt(second @ g.square() / second.sum())


def step_in_another_form(weight, gradient, first, second, step, lr, beta1, beta2, eps, decay):
    m = torch.lerp(gradient, first, beta1)
    v = second + (1 - beta2) * (gradient * gradient - second)
    root = v.sqrt() / math.sqrt(1 - beta2**step)
    moved = weight - lr * (m / (1 - beta1**step) / (root + eps) + decay * weight)
    return [moved, m, v]


def safe_by_a_loop(gradients):
    for gradient in gradients:
        if gradient is not None and (gradient.isnan().any() or gradient.isinf().any()):
            return False
    return True


@pytest.mark.parametrize(
    ("check", "name", "other"),
    [
        (checks.moving_averages, "moving_averages", recursive_averages),
        (checks.steps_to_half, "steps_to_half", 7.0),
        (checks.corrected_averages, "corrected_averages", explicit_corrected),
        (checks.update_direction, "update_direction", direction_with_tensors),
        (checks.adamw_step, "adamw_step", step_in_another_form),
        (checks.two_decays, "after_step", [1.90000000, 2.0]),
        (checks.step_is_safe, "step_is_safe", safe_by_a_loop),
    ],
)
def test_solution_blank_and_a_second_right_answer(check, name, other):
    given = {"torch": torch}
    assert_verdict(check, solution(LESSON, name, **given), RIGHT)
    assert_verdict(check, blank(LESSON, name, **given), NOT_ATTEMPTED)
    assert_verdict(check, other, RIGHT)


def test_the_solution_is_the_step_of_torch():
    step = solution(LESSON, "adamw_step")
    weight = torch.nn.Parameter(torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64))
    settings = {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.2}
    optimizer = torch.optim.AdamW([weight], **settings)
    ours, m, v = weight.detach().clone(), torch.zeros(1, 3), torch.zeros(1, 3)
    for t, size in enumerate((3.0, -0.2, 0.0, 5.0, 1.0), start=1):
        weight.grad = size * torch.tensor([[1.0, 0.1, -4.0]], dtype=torch.float64)
        optimizer.step()
        ours, m, v = step(ours, weight.grad, m, v, t, 0.03, 0.8, 0.95, 1e-3, 0.2)
        torch.testing.assert_close(ours, weight.detach(), rtol=0, atol=1e-14)
    torch.testing.assert_close(v, optimizer.state[weight]["exp_avg_sq"], rtol=0, atol=1e-14)


def ema_from(start, old, new):
    def answer(values, beta):
        average, averages = start(values), []
        for value in values:
            average = old(beta) * average + new(beta) * value
            averages.append(average)
        return averages

    return answer


def zero(values):
    return 0.0


def beta_of(beta):
    return beta


def rest_of(beta):
    return 1 - beta


def overwriting(values, beta):
    average = 0.0
    for i in range(len(values)):
        values[i] = average = beta * average + (1 - beta) * values[i]
    return values


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (ema_from(zero, rest_of, beta_of), "the two shares are swapped"),
        (ema_from(lambda v: v[0] if v else 0.0, beta_of, rest_of), "you started at the first"),
        (ema_from(zero, beta_of, lambda beta: 1.0), "came in whole"),
        (lambda v, beta: [(1 - beta) * a for a in v], "Case: values=[6.0, -2.0, 9.5]"),
        (lambda v, beta: [sum(v[: t + 1]) / (t + 1) for t in range(len(v))], "the plain mean"),
        (explicit_corrected, "the bias-corrected average"),
        (lambda v, beta: recursive_averages(v, beta)[-1], "the last average only"),
        (lambda v, beta: recursive_averages(v, 0.9), "Case: values=[6.0, -2.0, 9.5]"),
        (lambda v, beta: recursive_averages(v, beta)[1:], "yours has 2"),
        (lambda v, beta: [1.5, 0.625, 2.84375], "Case: values=[-4.0]"),
        (overwriting, "changed its argument number 1"),
        (lambda v, beta: print(end=""), "returned None"),
        ([1.5, 0.625], "A function is expected"),
    ],
)
def test_wrong_moving_averages(answer, hint):
    assert_verdict(checks.moving_averages, answer, WRONG, hint)


def test_mixing_with_the_value_before_is_explained():
    def answer(values, beta):
        pairs = zip([0.0, *values], values, strict=False)
        return [beta * before + (1 - beta) * value for before, value in pairs]

    assert_verdict(checks.moving_averages, answer, WRONG, "the average before it")


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (10, "the time scale"),
        (5, "along a straight line"),
        (6, "still above one half"),
        (8, "one too many"),
        (6.58, "a number of steps is whole"),
        (0.478, "Yours: 0.478"),
        ("seven", "A number is expected"),
    ],
)
def test_wrong_steps_to_half(answer, hint):
    assert_verdict(checks.steps_to_half, answer, WRONG, hint)
    assert "7" not in checks.steps_to_half.verdict(answer).text.replace("0.478", "")


def corrected_by(correct, first_step=1):
    def answer(values, beta):
        raw = recursive_averages(values, beta)
        return [correct(a, beta, t) for t, a in enumerate(raw, start=first_step)]

    return answer


def divided(average, beta, step):
    return average / (1 - beta**step)


def stored_corrected(values, beta):
    average, averages = 0.0, []
    for step, value in enumerate(values, start=1):
        average = divided(beta * average + (1 - beta) * value, beta, step)
        averages.append(average)
    return averages


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (recursive_averages, "no correction yet"),
        (stored_corrected, "the correction piles up"),
        (corrected_by(divided, first_step=0), "your steps count from 0"),
        (corrected_by(divided, first_step=2), "your step is one too high"),
        (corrected_by(lambda a, beta, t: a / (1 - beta)), "the divisor changes with the step"),
        (corrected_by(lambda a, beta, t: a * (1 - beta**t)), "divide by it"),
        (corrected_by(lambda a, beta, t: a / beta**t), "the sum of the shares"),
        (corrected_by(lambda a, beta, t: a / (1 - beta * t)), "a power, not a product"),
        (ema_from(lambda v: v[0] if v else 0.0, beta_of, rest_of), "start at zero and divide"),
        (lambda v, beta: explicit_corrected(v, beta)[-1:], "yours has 1"),
        (lambda v, beta: [6.0] * len(v), "Case: values=[6.0, -2.0, 9.5]"),
    ],
)
def test_wrong_corrected_averages(answer, hint):
    assert_verdict(checks.corrected_averages, answer, WRONG, hint)


def fraction(first=None, second=None, root=math.sqrt):
    """Return a direction from two averages, each a function of (gradients, beta1, beta2)."""

    def corrected(values, beta):
        return explicit_corrected(values, beta)[-1]

    first = first or (lambda g, beta1, beta2: corrected(g, beta1))
    second = second or (lambda g, beta1, beta2: corrected([x * x for x in g], beta2))
    return lambda g, beta1, beta2: first(g, beta1, beta2) / root(second(g, beta1, beta2))


def raw_first(g, beta1, beta2):
    return recursive_averages(g, beta1)[-1]


def raw_second(g, beta1, beta2):
    return recursive_averages([x * x for x in g], beta2)[-1]


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (fraction(raw_first, raw_second), "the bias corrections are missing"),
        (fraction(second=raw_second), "the second moment is not corrected"),
        (fraction(first=raw_first), "the first moment is not corrected"),
        (fraction(root=lambda v: v), "the root is missing"),
        (
            fraction(second=lambda g, b1, b2: explicit_corrected(g, b2)[-1] ** 2),
            "the average of the squares",
        ),
        (lambda g, b1, b2: direction_with_tensors(g, b2, b1), "the betas are swapped"),
        (lambda g, b1, b2: direction_with_tensors(g, b1, b1), "beta1 for both"),
        (lambda g, b1, b2: abs(direction_with_tensors(g, b1, b2)), "the sign is lost"),
        (fraction(first=lambda g, b1, b2: g[-1]), "not the last gradient"),
        (
            fraction(first=lambda g, b1, b2: raw_first(g, b1, b2) / (1 - b1 ** (len(g) - 1))),
            "Case: gradients=[4.0, -1.0, 2.5]",
        ),
        (lambda g, b1, b2: 1.0, "Case: gradients=[4.0, -1.0, 2.5]"),
        (lambda g, b1, b2: [0.0], "A number is expected"),
    ],
)
def test_wrong_update_direction(answer, hint):
    assert_verdict(checks.update_direction, answer, WRONG, hint)


def test_direction_with_steps_from_zero_is_explained():
    def answer(gradients, beta1, beta2):
        first = second = 0.0
        for step, g in enumerate(gradients):
            first, second = beta1 * first + (1 - beta1) * g, beta2 * second + (1 - beta2) * g * g
            fraction = first / (1 - beta1**step) / (second / (1 - beta2**step)) ** 0.5
        return fraction

    assert_verdict(checks.update_direction, answer, WRONG, "your steps count from 0")


STEP_LINES = {
    "first": "beta1 * first + (1 - beta1) * gradient",
    "second": "beta2 * second + (1 - beta2) * gradient**2",
    "m": "first / (1 - beta1**step)",
    "v": "second / (1 - beta2**step)",
    "weight": "(1 - lr * weight_decay) * weight",
    "moved": "weight - lr * m / (v.sqrt() + eps)",
    "result": "(moved, first, second)",
}


def step_with(prelude="pass", **changed):
    """Return an AdamW step whose lines are STEP_LINES, some of them changed: a wrong answer."""
    lines = [prelude] + [f"{name} = {code}" for name, code in {**STEP_LINES, **changed}.items()]
    names = "weight, gradient, first, second, step, lr, beta1, beta2, eps, weight_decay"
    body = "\n    ".join([*lines, "return result"])
    namespace = {"torch": torch}
    exec(f"def answer({names}):\n    {body}", namespace)
    return namespace["answer"]


def test_the_unchanged_lines_are_right():
    assert_verdict(checks.adamw_step, step_with(), RIGHT, "5 cases pass")


@pytest.mark.parametrize(
    ("changed", "hint"),
    [
        ({"prelude": "beta1, beta2 = beta2, beta1"}, "the betas are swapped"),
        ({"m": "first", "v": "second"}, "the bias corrections are missing"),
        ({"result": "(moved, m, v)"}, "you returned the corrected moments"),
        ({"moved": "weight - lr * m / (v + eps).sqrt()"}, "eps is inside the root"),
        (
            {"moved": "weight - lr * m * (1 - beta2**step)**0.5 / (second.sqrt() + eps)"},
            "eps is added before the bias correction",
        ),
        ({"moved": "weight - lr * m / v.sqrt()"}, "eps is missing"),
        ({"moved": "weight - lr * m / (v + eps)"}, "the root is missing"),
        (
            {"prelude": "gradient = gradient + weight_decay * weight", "weight": "weight"},
            "That is L2",
        ),
        (
            {"weight": "weight", "result": "((1 - lr * weight_decay) * moved, first, second)"},
            "shrank the update too",
        ),
        ({"weight": "(1 - weight_decay) * weight"}, "not multiplied by lr"),
        ({"weight": "weight"}, "the weight decay is missing"),
        ({"moved": "weight + lr * m / (v.sqrt() + eps)"}, "moves against the gradient"),
        ({"second": "beta2 * second + (1 - beta2) * gradient"}, "the gradient is not squared"),
        (
            {"second": "beta2 * second + ((1 - beta2) * gradient)**2"},
            "the share 1 - beta2 was squared too",
        ),
        ({"prelude": "step = step - 1"}, "one too low"),
        ({"prelude": "step = step + 1"}, "one too high"),
        ({"prelude": "factor = 1 / (1 - beta1 ** (step - 1))"}, "your steps count from 0"),
        ({"first": "first.mul_(beta1).add_((1 - beta1) * gradient)"}, "changed its argument num"),
        ({"weight": "weight.mul_(1 - lr * weight_decay)"}, "changed its argument number 1"),
        ({"result": "(moved.mean(), first, second)"}, "The shape should be (2, 3); yours is ()"),
        ({"result": "(moved[:1], first, second)"}, "The shape should be (2, 3)"),
        ({"result": "moved"}, "3 values are expected"),
        ({"result": "(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3))"}, "step 1, weight"),
        ({"result": "(moved, second, first)"}, "Case: step 1, weight of shape (2, 3)"),
        ({"moved": "weight - 0.1 * m / (v.sqrt() + eps)"}, "Case: step 4 with earlier moments"),
    ],
)
def test_wrong_adamw_step(changed, hint):
    assert_verdict(checks.adamw_step, step_with(**changed), WRONG, hint)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        ((2.1, 2.0), "which sign has the sum"),
        ((1.9, 1.9), "AdamW's moments never see the decay"),
        ((2.0, 1.9), "in the other order"),
        ((2.1, 2.1), "you left the decay out"),
        ((1.95, 1.95), "lr times the gradient"),
        ((1.9, 1.8), "the step is upwards"),
        ((1.9, 1.1), "lr * weight_decay * weight"),
        ((1.9, 1.995), "shrink the old one"),
        ((1.9, 2.1), "the decay is missing"),
        ((1.9,), "2 values are expected"),
        (2.0, "2 values are expected"),
        ((0.0, 0.0), "Yours: [0, 0]"),
    ],
)
def test_wrong_two_decays(answer, hint):
    assert_verdict(checks.two_decays, answer, WRONG, hint)


def test_the_expected_decays_are_those_of_torch():
    after = []
    for kind in (torch.optim.Adam, torch.optim.AdamW):
        weight = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
        optimizer = kind([weight], lr=0.1, weight_decay=0.5)
        weight.grad = torch.tensor([-0.5], dtype=torch.float64)
        optimizer.step()
        after.append(weight.item())
    assert_verdict(checks.two_decays, tuple(after), RIGHT)


def test_half_a_prediction_is_not_an_attempt():
    assert_verdict(checks.two_decays, (1.9, ...), NOT_ATTEMPTED)


def present(gradients):
    return [g for g in gradients if g is not None]


def last_decides(gradients):
    safe = True
    for gradient in gradients:
        safe = gradient is None or bool(gradient.isfinite().all())
    return safe


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (lambda gs: not any(g.isnan().any() for g in present(gs)), "an infinity is not a NaN"),
        (lambda gs: not any(g.isinf().any() for g in present(gs)), "a NaN is not an infinity"),
        (lambda gs: any(bool(g.isfinite().all()) for g in present(gs)), "one finite gradient"),
        (lambda gs: all(bool(g.isfinite().any()) for g in present(gs)), "one finite number"),
        (lambda gs: not gs or safe_by_a_loop(gs[:1]), "the first gradient only"),
        (last_decides, "the last gradient alone decides"),
        (lambda gs: None not in [g if g is None else 0 for g in gs] and safe_by_a_loop(gs), "None"),
        (lambda gs: all(bool(g.isfinite().all()) for g in gs), "pass over it"),
        (lambda gs: all(bool(torch.isfinite(g).all()) for g in gs), "pass over it"),
        (lambda gs: not safe_by_a_loop(gs), "the wrong way round"),
        (lambda gs: all(bool(g.sum().isfinite()) for g in present(gs)), "can overflow"),
        (lambda gs: True, "a NaN in the first of two tensors"),
        (lambda gs: False, "two finite tensors"),
        (lambda gs: [True], "True or False is expected"),
        (lambda gs: 1, "True or False is expected"),
        (lambda gs: gs.clear() or True, "changed its argument"),
        (True, "A function is expected"),
    ],
)
def test_wrong_step_is_safe(answer, hint):
    assert_verdict(checks.step_is_safe, answer, WRONG, hint)


def test_no_wrong_verdict_shows_the_solution():
    source = "(1 - lr * weight_decay) * weight"
    text = checks.adamw_step.verdict(step_with(weight="weight")).text
    assert source not in text
    assert "expected:" in text
