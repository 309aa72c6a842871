"""What checks of functions over whole models share: the kinds of model, and how one is tried."""

from collections.abc import Callable, Mapping, Sequence

from torch import nn

from utils.checks.core import (
    Case,
    Misconception,
    Wrong,
    check_function,
    check_value,
    require_attempt,
)

TIED = "you counted a tied matrix twice: it is one tensor with two names."


class TiedModel(nn.Module):
    """An embedding whose matrix is also the matrix of the output layer."""

    def __init__(self, tokens: int, width: int):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.norm = nn.BatchNorm1d(width)  # its running statistics are buffers, no parameters
        self.head = nn.Linear(width, tokens)
        self.head.weight = self.embedding.weight


def _frozen_first() -> nn.Module:
    model = nn.Sequential(nn.Linear(13, 7), nn.ReLU(), nn.Linear(7, 3, bias=False))
    model[0].requires_grad_(False)
    return model


def _tied_and_frozen() -> nn.Module:
    model = TiedModel(11, 3).bfloat16()
    model.embedding.requires_grad_(False)
    return model


MODELS = {
    "nn.Linear(13, 7)": lambda: nn.Linear(13, 7),
    "two layers, the first one frozen": _frozen_first,
    "two layers, the first one frozen, in bfloat16": lambda: _frozen_first().bfloat16(),
    "an embedding tied to the output layer, and a batch norm": lambda: TiedModel(17, 5),
    "a float32 layer and a bfloat16 layer": lambda: nn.Sequential(
        nn.Linear(6, 5), nn.Linear(5, 2).bfloat16()
    ),
    "a tied embedding that is frozen, in bfloat16": _tied_and_frozen,
    "two layers, all frozen": lambda: _frozen_first().requires_grad_(False),
}


def check_on_models(
    answer,
    reference: Callable,
    misconceptions: Sequence[Misconception],
    models: Mapping[str, Callable[[], nn.Module]] = MODELS,
) -> str:
    """Return the praise if `answer(model)` equals `reference(model)` for each of `models`.

    Misconceptions take a model, too. A model that comes back changed is a wrong answer.
    """
    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")
    changed = []

    def on_model(label):
        model = models[label]()
        before = _fingerprint(model)
        result = answer(model)
        if _fingerprint(model) != before:
            changed.append(label)
        return result

    def built(function):
        return lambda label: function(models[label]())

    praise = check_function(
        on_model,
        built(reference),
        [Case(label, (label,)) for label in models],
        [Misconception(built(m.wrong), m.hint) for m in misconceptions],
    )
    if changed:
        raise Wrong(
            f"Case: {changed[0]}\nThe value is right, but your function changed the model: its "
            "weights, gradients or what is trainable. Only look at it, or work on a copy."
        )
    return praise


def _fingerprint(model: nn.Module) -> list[tuple]:
    return [
        (name, p.requires_grad, p.grad is None, p.dtype, p.detach().float().sum().item())
        for name, p in model.named_parameters()
    ]


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that get a gradient."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def tied_twice(model: nn.Module) -> list[nn.Parameter]:
    """Return the trainable parameters with a tied one as often as it has names."""
    named = model.named_parameters(remove_duplicate=False)
    return [parameter for _, parameter in named if parameter.requires_grad]


def numbers(tensors) -> int:
    """Return how many numbers `tensors` hold in all."""
    return sum(tensor.numel() for tensor in tensors)


def num_bytes(tensors) -> int:
    """Return the bytes of `tensors` in all."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def check_part(name: str, answer, expected, misconceptions, tolerance: float) -> None:
    """Check one value of a pair; the text of a wrong one starts with its `name`."""
    try:
        check_value(answer, expected, misconceptions, tolerance=tolerance)
    except Wrong as wrong:
        raise Wrong(f"{name}. {wrong}") from None
