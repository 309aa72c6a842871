"""Checks of lesson 04: the loop, evaluation over batches, accumulation, a broken loop."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from utils.checks.core import (
    Case,
    Misconception,
    Wrong,
    check_function,
    check_value,
    exercise,
    require_attempt,
)


class _Classifier(nn.Module):
    """Two labels from three numbers; the mean cross entropy as loss; dropout if asked for."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.layer, self.dropout = nn.Linear(3, 2), nn.Dropout(dropout)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[0.5, -1.0, 0.25], [-0.5, 0.75, 1.0]]))
            self.layer.bias.copy_(torch.tensor([0.1, -0.2]))
        self.recorded_graph = False

    def forward(self, x: Tensor, labels: Tensor) -> SimpleNamespace:
        self.recorded_graph |= torch.is_grad_enabled()
        logits = self.layer(self.dropout(x))
        return SimpleNamespace(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


class _Accelerator:
    """Counts the backward passes. A real one would reset the learner's (it is one a process)."""

    def __init__(self):
        self.calls = 0

    def backward(self, loss: Tensor) -> None:
        self.calls += 1
        loss.backward()


def _batches(sizes: tuple[int, ...], seed: int = 0) -> list[dict[str, Tensor]]:
    chance = torch.Generator().manual_seed(seed)
    return [
        {
            "x": torch.randn(size, 3, generator=chance),
            "labels": torch.randint(0, 2, (size,), generator=chance),
        }
        for size in sizes
    ]


_SIZES = {
    "three batches of 4": (4, 4, 4),
    "five batches, the last one smaller": (6, 6, 6, 6, 2),
    "one batch": (5,),
}


def _epoch(train: Callable, sizes: tuple[int, ...]) -> dict:
    """Return the losses that `train` gives, the weights it leaves and the last learning rate."""
    model = _Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    accelerator = _Accelerator()
    losses = train(model, _batches(sizes), optimizer, schedule, accelerator)
    if losses is None:
        return None
    if isinstance(losses, (list, tuple)) and any(torch.is_tensor(v) and v.grad_fn for v in losses):
        raise Wrong(
            "Your list holds tensors with their graph, which stays in memory: append loss.item()."
        )
    if accelerator.calls == 0:
        raise Wrong("accelerator.backward was never called: use it in place of loss.backward().")
    return {
        "losses": losses,
        "weights": model.layer.weight.detach(),
        "learning rate": optimizer.param_groups[0]["lr"],
    }


def _loop(*order: str, last: str | None = None, returns: Callable = lambda losses: losses):
    """Return a training function that does the named things after each forward pass.

    `last` is done once at the end, `returns` makes the result from the list of losses.
    """

    def train(model, loader, optimizer, schedule, accelerator):
        losses = []
        actions = {"step": optimizer.step, "schedule": schedule.step, "zero": optimizer.zero_grad}
        for batch in loader:
            loss = model(**batch).loss
            losses.append(loss.item())
            for what in order:
                if what == "backward":
                    accelerator.backward(loss)
                else:
                    actions[what]()
        if last:
            actions[last]()
        return returns(losses)

    return train


_RIGHT_ORDER = ("backward", "step", "schedule", "zero")


@exercise("4.1")
def train_epoch(answer) -> str:
    """Check `train_epoch(model, loader, optimizer, lr_scheduler, accelerator)`: list of losses."""
    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")
    problems = []

    def on_sizes(label):
        try:
            return _epoch(answer, _SIZES[label])
        except Wrong as wrong:
            problems.append(wrong)
            raise

    def variant(*order, **options):
        return lambda label: _epoch(_loop(*order, **options), _SIZES[label])

    misconceptions = [
        Misconception(
            variant("backward", "step", "schedule"),
            "the gradients are never zeroed, so that every step adds to the old ones.",
        ),
        Misconception(
            variant("backward", "zero", "step", "schedule"),
            "the weights never move: is optimizer.step() there, and are the gradients still there "
            "when it is called?",
        ),
        Misconception(
            variant("backward", "step", "zero"),
            "the learning rate schedule never steps.",
        ),
        Misconception(
            variant("backward", "step", "zero", last="schedule"),
            "the schedule steps once an epoch; it counts steps.",
        ),
        Misconception(
            variant("backward", "schedule", "step", "zero"),
            "the schedule steps before the optimizer: the first learning rate is skipped.",
        ),
        Misconception(
            variant("backward", last="step"),
            "the step stands outside the loop: it belongs to each batch.",
        ),
        Misconception(
            variant(*_RIGHT_ORDER, returns=lambda losses: losses[-1]),
            "you returned the last loss; the list of all is asked for.",
        ),
        Misconception(
            variant(*_RIGHT_ORDER, returns=lambda losses: losses[:1]),
            "you returned after the first batch. Is the return inside the loop?",
        ),
    ]
    cases = [Case(label, (label,)) for label in _SIZES]
    try:
        return check_function(on_sizes, variant(*_RIGHT_ORDER), cases, misconceptions)
    except Wrong:
        if problems:
            raise problems[0] from None
        raise


_LOADERS = {
    "two batches of 5": ((5, 5), 0.0),
    "batches of 8, 8 and 1": ((8, 8, 1), 0.0),
    "batches of 7, 7 and 2, a model with dropout": ((7, 7, 2), 0.9),
}


@exercise("4.2")
def accuracy_over(answer) -> str:
    """Check `accuracy_over(model, loader)`: share of examples that are predicted rightly."""
    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")
    problems = []

    def measure(function, label):
        sizes, dropout = _LOADERS[label]
        model = _Classifier(dropout).train()
        torch.manual_seed(1)
        return function(model, _batches(sizes, seed=3)), model

    def on_loader(label):
        found, model = measure(answer, label)
        if model.recorded_graph:
            problems.append("the graph is recorded: put `with torch.no_grad():` around the model.")
        return found

    def per_batch(model, loader):
        return [
            ((model(**b).logits.argmax(-1) == b["labels"]).sum().item(), len(b["labels"]))
            for b in loader
        ]

    def shares(model, loader):
        right, seen = zip(*per_batch(model, loader), strict=True)
        return sum(right) / sum(seen)

    def in_eval(function):
        return lambda label: measure(lambda m, loader: function(m.eval(), loader), label)[0]

    misconceptions = [
        Misconception(
            in_eval(lambda m, b: sum(r / s for r, s in per_batch(m, b)) / len(b)),
            "you averaged the accuracies of the batches; a small batch then counts too much.",
        ),
        Misconception(
            in_eval(lambda m, b: per_batch(m, b)[-1][0] / per_batch(m, b)[-1][1]),
            "that is the accuracy of the last batch.",
        ),
        Misconception(
            in_eval(lambda m, b: per_batch(m, b)[0][0] / per_batch(m, b)[0][1]),
            "that is the accuracy of the first batch. Is the return inside the loop?",
        ),
        Misconception(
            in_eval(lambda m, b: sum(r for r, _ in per_batch(m, b))),
            "you counted the right ones; divide by the number of examples.",
        ),
        Misconception(
            in_eval(lambda m, b: sum(r for r, _ in per_batch(m, b)) / len(b)),
            "you divided by the number of batches; divide by the number of examples.",
        ),
        Misconception(in_eval(lambda m, b: 1 - shares(m, b)), "that is the share of errors."),
        Misconception(
            lambda label: measure(shares, label)[0],
            "dropout is still on: call model.eval() before the loop.",
        ),
    ]
    cases = [Case(label, (label,)) for label in _LOADERS]
    praise = check_function(on_loader, in_eval(shares), cases, misconceptions)
    if problems:
        raise Wrong(f"The value is right, but {problems[0]}")
    return praise


_GROUPS = {
    "four batches of 4": (4, 4, 4, 4),
    "batches of 6, 6 and 1": (6, 6, 1),
    "batches of 1, 9 and 3, and gradients left from before": (1, 9, 3),
    "one batch of 7": (7,),
}


@exercise("4.3")
def accumulate_gradients(answer) -> str:
    """Check `accumulate_gradients(model, batches)`: gradient of the mean over all examples."""
    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")

    def gradients(function, label):
        model = _Classifier()
        if "left from before" in label:
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
        before = model.layer.weight.detach().clone()
        function(model, _batches(_GROUPS[label], seed=5))
        if not torch.equal(before, model.layer.weight):
            raise ValueError("the weights have changed: only the gradients should")
        if model.layer.weight.grad is None:
            raise ValueError("the parameters have no gradient: is backward called?")
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    def scaled(factor, zero_first=True, zero_each=False):
        """Return a function that backpropagates each loss times factor(size, total, count)."""

        def accumulate(model, batches):
            total = sum(len(b["labels"]) for b in batches)
            if zero_first:
                model.zero_grad()
            for batch in batches:
                if zero_each:
                    model.zero_grad()
                size = len(batch["labels"])
                (model(**batch).loss * factor(size, total, len(batches))).backward()

        return lambda label: gradients(accumulate, label)

    misconceptions = [
        Misconception(
            scaled(lambda size, total, count: 1),
            "you added up the gradients of means: each loss needs its share.",
        ),
        Misconception(
            scaled(lambda size, total, count: 1 / count),
            "you divided by the number of batches; that is right only if all have one size.",
        ),
        Misconception(
            scaled(lambda size, total, count: size),
            "that is the gradient of the sum; divide by the number of all examples.",
        ),
        Misconception(
            scaled(lambda size, total, count: 1 / total),
            "the loss is a mean: multiply it by the batch's size before you divide by the total.",
        ),
        Misconception(
            scaled(lambda size, total, count: 1 / size),
            "the loss is a mean already; weight it with its size instead of dividing again.",
        ),
        Misconception(
            scaled(lambda size, total, count: size / total, zero_first=False),
            "gradients from before are still in: zero them first.",
        ),
        Misconception(
            scaled(lambda size, total, count: size / total, zero_each=True),
            "you zeroed the gradients for every batch: once, before the loop.",
        ),
    ]
    return check_function(
        lambda label: gradients(answer, label),
        scaled(lambda size, total, count: size / total),
        [Case(label, (label,)) for label in _GROUPS],
        misconceptions,
        tolerance=1e-5,
    )


_WRONG_LINES = {8: "zero_grad", 10: "append", 11: "schedule"}
_SOUND_LINES = {
    4: "line 4 is right: training mode is wanted here.",
    6: "line 6 is right: that is the forward pass.",
    7: "line 7 is right: that is the backward pass.",
    9: "line 9 is right in itself: it is the line before it that spoils it.",
    5: "line 5 is right: it goes through the batches.",
}


@exercise("4.4")
def wrong_lines(answer) -> str:
    """Check the numbers of the three wrong lines of the broken loop."""
    require_attempt(answer)
    if not isinstance(answer, (list, tuple, set)):
        raise Wrong("A list of three line numbers is expected.")
    if not all(isinstance(number, int) for number in answer):
        raise Wrong(f"Line numbers are whole numbers; yours: {list(answer)}.")
    numbers = sorted(set(answer))
    innocent = [number for number in numbers if number not in _WRONG_LINES]
    if len(numbers) != len(_WRONG_LINES) and not innocent:
        raise Wrong(f"{len(numbers)} of the three are found; the others are still there.")
    if innocent:
        hint = _SOUND_LINES.get(innocent[0], f"line {innocent[0]} is right.")
        raise Wrong(f"{len(numbers) - len(innocent)} of yours are wrong lines. But {hint}")
    return check_value(numbers, sorted(_WRONG_LINES))
