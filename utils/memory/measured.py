"""Optimizer state, measured: as the lessons count it first, and as memory really holds it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from utils.memory.units import MIB, format_bytes

EMPTY_STATE = (
    "The state is empty: the optimizer has not taken a step yet, its first step was skipped, "
    "or it keeps no state at all (SGD without momentum)."
)


@dataclass(frozen=True)
class StateSize:
    """The size of one kind of state over all parameters, such as all `exp_avg` together."""

    tensors: int
    elements: int
    bytes: int

    def __add__(self, other: "StateSize") -> "StateSize":
        return StateSize(
            self.tensors + other.tensors, self.elements + other.elements, self.bytes + other.bytes
        )


@dataclass(frozen=True)
class OptimizerStateSize:
    """What an optimizer's state takes, in all and by state name.

    `notes` says in words what a reader should know about the figure; it plays no part in
    comparisons, so `estimate_optimizer_state(...) == measure_optimizer_state(...)` compares bytes,
    elements and names.
    """

    bytes: int
    elements: int
    by_name: Mapping[str, StateSize]
    notes: tuple[str, ...] = field(default=(), compare=False)


def compute_optimizer_size(optimizer_state: Iterable[Mapping]) -> tuple[float, int]:
    """Return `(total_size_megabytes, total_num_elements)` of `optimizer.state.values()`.

    Each state value counts numel() * element_size() bytes and numel() elements; a megabyte is
    1024**2 bytes (MiB). A tensor counts as it stands. A Python number counts as the tensor that
    torch makes of it: an int is one int64 element of 8 bytes, a float one element of the default
    dtype, a bool one byte. Items of a list, tuple or dict count one by one. None counts nothing.
    An empty state gives (0.0, 0): no step was taken yet (`describe_optimizer_state` says it in
    words).

    `measure_optimizer_state` differs in four ways: it counts memory that several tensors share
    once (bitsandbytes' code maps), looks inside tensor subclasses (a quantized tensor that claims
    float32 counts here as float32), leaves Python numbers out, and takes the optimizer itself.

    Raises TypeError when given an optimizer, `optimizer.state` or `optimizer.state_dict()`, and
    for a state value that is none of the above.
    """
    sizes = size_by_state_name(optimizer_state).values()
    return sum(s.bytes for s in sizes) / MIB, sum(s.elements for s in sizes)


def size_by_state_name(optimizer_state: Iterable[Mapping]) -> dict[str, StateSize]:
    """Return tensors, elements and bytes for each state name, in order of first appearance.

    Takes `optimizer.state.values()` and counts as `compute_optimizer_size` does; Python numbers
    count as tensors of one element. Raises the same errors.
    """
    sizes: dict[str, StateSize] = {}
    for parameter_state in _states(optimizer_state):
        for name, value in parameter_state.items():
            for leaf in iterate_leaves(name, value):
                tensor = torch.as_tensor(leaf)
                size = StateSize(1, tensor.numel(), tensor.numel() * tensor.element_size())
                sizes[name] = sizes.get(name, StateSize(0, 0, 0)) + size
    return sizes


def describe_optimizer_state(optimizer_state: Iterable[Mapping]) -> str:
    """Return a table of tensors, elements, bytes and MiB for each state name, or why there is none.

    Takes `optimizer.state.values()` and counts as `compute_optimizer_size` does. Raises the same
    errors.
    """
    sizes = size_by_state_name(optimizer_state)
    return state_table(sizes) if sizes else EMPTY_STATE


def state_table(sizes: Mapping[str, StateSize]) -> str:
    """Return `sizes` as lines of text with a total, ready to print."""
    rows = {**sizes, "total": sum(sizes.values(), StateSize(0, 0, 0))}
    width = max(map(len, [*rows, "state"]))
    lines = [f"{'state':<{width}}  {'tensors':>7}  {'elements':>15}  {'bytes':>17}"]
    lines += [
        f"{name:<{width}}  {s.tensors:>7,}  {s.elements:>15,}  {s.bytes:>17,} = "
        f"{format_bytes(s.bytes)}"
        for name, s in rows.items()
    ]
    return "\n".join(lines)


def _states(optimizer_state) -> Iterator[Mapping]:
    """Yield the state of each parameter, or raise a TypeError that names what to pass."""
    what = type(optimizer_state).__name__
    if hasattr(optimizer_state, "param_groups"):
        raise TypeError(f"got the optimizer itself ({what}): pass optimizer.state.values()")
    if isinstance(optimizer_state, Mapping):
        if "param_groups" in optimizer_state:
            raise TypeError(
                'got a state_dict: pass optimizer.state.values() (or state_dict["state"].values())'
            )
        raise TypeError(f"got a {what}, such as optimizer.state: pass optimizer.state.values()")
    if isinstance(optimizer_state, (str, torch.Tensor)) or not isinstance(
        optimizer_state, Iterable
    ):
        raise TypeError(f"got a {what}: pass optimizer.state.values()")
    for parameter_state in optimizer_state:
        if not isinstance(parameter_state, Mapping):
            raise TypeError(
                f"got {type(parameter_state).__name__} where the state of a parameter (a dict of "
                "state names and values) was expected: pass optimizer.state.values()"
            )
        yield parameter_state


def iterate_leaves(name: str, value) -> Iterator:
    """Yield the tensors and numbers inside a state value."""
    if value is None:
        return
    if isinstance(value, (torch.Tensor, bool, int, float, complex)):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from iterate_leaves(name, item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from iterate_leaves(name, item)
    elif hasattr(value, "__array__"):
        yield torch.as_tensor(value)
    else:
        raise TypeError(
            f"state {name!r} holds a {type(value).__name__}; tensors, numbers, None, and lists, "
            "tuples and dicts of them can be counted"
        )
