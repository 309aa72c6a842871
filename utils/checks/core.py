"""What every exercise check is made of: attempt, cases, misconceptions, verdict.

A check gives one of three answers. "Not attempted yet" never shows a traceback. "Not yet" names the
case, what came, what was expected and, when the answer matches a known misconception, the likely
cause; it never shows the solution. "Right" says how much was tried.
"""

import copy
import dis
import functools
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RIGHT, WRONG, NOT_ATTEMPTED = "right", "wrong", "not attempted"
_NO_VALUE = object()


@dataclass(frozen=True)
class Verdict:
    """The outcome of one check: one of the three statuses above, and the text to print."""

    status: str
    text: str


@dataclass(frozen=True)
class Case:
    """One call of the learner's function: `label` is what is shown, `args` what it is given."""

    label: str
    args: tuple


@dataclass(frozen=True)
class Misconception:
    """A plausible wrong answer with the hint that helps whoever wrote it.

    `wrong` is a function of the case's arguments; for an exercise that asks for a value, a value.
    """

    wrong: Any
    hint: str


class NotAttempted(Exception):  # noqa: N818 (an answer, not an error)
    """Raised by a check when the exercise cell still holds its blank."""


class Wrong(Exception):  # noqa: N818
    """Raised by a check with the text that the learner reads."""


def exercise(number: str) -> Callable:
    """Turn a function that raises `Wrong` or `NotAttempted` into a check that prints its verdict.

    The decorated function prints and returns None, so that a check cell shows one text. Its
    `verdict(answer)` returns the `Verdict` instead, and its `number` is the exercise's ("1.2").
    """

    def decorate(check: Callable) -> Callable:
        def verdict(*answer) -> Verdict:
            try:
                praise = check(*answer)
            except NotAttempted:
                return Verdict(
                    NOT_ATTEMPTED,
                    f"Exercise {number}: not attempted yet. "
                    "Replace the ... in the cell above, run it, then run this check.",
                )
            except Wrong as wrong:
                return Verdict(WRONG, f"Exercise {number}: not yet.\n{wrong}")
            return Verdict(RIGHT, f"Exercise {number}: right. {praise}")

        @functools.wraps(check)
        def show(*answer) -> None:
            print(verdict(*answer).text)

        show.verdict, show.number = verdict, number
        return show

    return decorate


def require_attempt(answer: Any) -> None:
    """Raise `NotAttempted` if `answer` is a `...`, or a function whose body still is one.

    A body of `...` compiles to nothing, like `pass`; a `...` left on the right of an `=` stays
    among the function's constants.
    """
    if answer is Ellipsis or answer is None:
        raise NotAttempted
    if isinstance(answer, type):
        members = [m for m in vars(answer).values() if isinstance(m, types.FunctionType)]
        if not members or any(_is_blank(member) for member in members):
            raise NotAttempted
    elif isinstance(answer, types.FunctionType):
        if _is_blank(answer):
            raise NotAttempted
    elif isinstance(answer, (tuple, list)) and any(part is Ellipsis for part in answer):
        raise NotAttempted


def _is_blank(function: types.FunctionType) -> bool:
    def does_nothing(): ...

    def operations(code):
        return [(step.opname, step.argval) for step in dis.get_instructions(code)]

    code = function.__code__
    blank = operations(code) == operations(does_nothing.__code__)
    return blank or any(constant is Ellipsis for constant in code.co_consts)


def check_function(
    answer: Callable,
    reference: Callable,
    cases: Sequence[Case],
    misconceptions: Sequence[Misconception] = (),
    *,
    tolerance: float = 1e-6,
    error_hints: Mapping[str, str] | None = None,
    hint_fits_every_case: bool = False,
) -> str:
    """Return the praise if `answer` equals `reference` on every case, else raise `Wrong`.

    The answer gets its own copy of the arguments and must leave them unchanged. Values are compared
    by `difference`: same structure and shape, numbers within the relative `tolerance`.
    `error_hints` maps a fragment of an error's text to the hint for it. With `hint_fits_every_case`
    a misconception is named only if it gives the answer's value on all cases: with few possible
    values, such as True and False, wrong ideas agree by chance.
    """
    require_attempt(answer)
    if not callable(answer):
        raise Wrong(f"A function is expected here; this is {describe(answer)}.")
    for case in cases:
        try:
            got = call(answer, case)
        except Wrong as wrong:
            hints = [hint for part, hint in (error_hints or {}).items() if part in str(wrong)]
            raise Wrong("\n".join([str(wrong), *_cause(hints)])) from None
        problem = difference(got, reference(*copy.deepcopy(case.args)), tolerance)
        if problem is not None:
            fits = _fits(answer, cases, misconceptions, tolerance)
            failed = cases.index(case)
            likely = [m for m in fits if fits[m][failed]]
            if hint_fits_every_case:
                likely = [m for m in likely if all(fits[m])]
            best = sorted(likely, key=lambda m: -sum(fits[m]))[:1]
            raise Wrong(
                "\n".join([f"Case: {case.label}", problem, *_cause([m.hint for m in best])])
            )
    return f"{len(cases)} cases pass."


def _cause(hints: Sequence[str]) -> list[str]:
    return [f"Likely cause: {hint}" for hint in hints[:1]]


def _fits(answer, cases, misconceptions, tolerance) -> dict[Misconception, list[bool]]:
    """Return, for each misconception, on which of the cases it gives what `answer` gives."""

    def attempt(function, case):
        try:
            return function(*copy.deepcopy(case.args))
        except Exception:
            return _NO_VALUE  # it does not work on this case

    given = [attempt(answer, case) for case in cases]

    def agrees(got, wrong) -> bool:
        both = got is not _NO_VALUE and wrong is not _NO_VALUE
        return both and difference(got, wrong, tolerance) is None

    return {
        misconception: [
            agrees(got, attempt(misconception.wrong, case))
            for got, case in zip(given, cases, strict=True)
        ]
        for misconception in misconceptions
    }


def check_value(
    answer: Any,
    expected: Any,
    misconceptions: Sequence[Misconception] = (),
    *,
    tolerance: float = 1e-9,
) -> str:
    """Return the praise if `answer` equals `expected`, else raise `Wrong` without showing it."""
    require_attempt(answer)
    if difference(answer, expected, tolerance) is None:
        return f"It is {describe(expected)}."
    lines = [f"Yours: {describe(answer)}"]
    shape_problem = _structure_problem(answer, expected)
    if shape_problem:
        lines.append(shape_problem)
    fitting = [m.hint for m in misconceptions if difference(answer, m.wrong, tolerance) is None]
    raise Wrong("\n".join([*lines, *_cause(fitting)]))


def call(answer: Callable, case: Case) -> Any:
    """Return `answer(*case.args)`; raise `Wrong` if it errs, returns None or changes its input."""
    args = copy.deepcopy(case.args)
    try:
        got = answer(*args)
    except NotImplementedError:
        raise NotAttempted from None
    except Exception as error:
        raise Wrong(
            f"Case: {case.label}\nYour function raised {type(error).__name__}: {error}"
        ) from None
    for position, (before, after) in enumerate(zip(case.args, args, strict=True), start=1):
        if difference(after, before, 0.0) is not None:
            raise Wrong(
                f"Case: {case.label}\nYour function changed its argument number {position}: "
                "compute new values and leave what you were given as it is."
            )
    if got is None:
        raise Wrong(
            f"Case: {case.label}\nYour function returned None. Is a return statement missing?"
        )
    return got


def difference(got: Any, expected: Any, tolerance: float) -> str | None:
    """Return None if the two are equal within `tolerance`, else one text that shows both."""
    problem = _structure_problem(got, expected)
    if problem is None and not _close(got, expected, tolerance):
        problem = ""
    if problem is None:
        return None
    text = f"  expected: {describe(expected)}\n  yours:    {describe(got)}"
    return f"{text}\n{problem}" if problem else text


def describe(value: Any) -> str:
    """Return a short text for a learner: numbers with six digits, tensors with their shape."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return repr(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {describe(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(describe(item) for item in value) + "]"
    if _is_tensor(value):
        numbers = value.detach().reshape(-1).tolist()
        shown = ", ".join(describe(number) for number in numbers[:6])
        return (
            f"tensor of shape {tuple(value.shape)}: [{shown}{', ...' if len(numbers) > 6 else ''}]"
        )
    if callable(value):
        return f"the function {getattr(value, '__name__', 'without a name')}"
    return f"{type(value).__name__} {value!r}"


def _is_tensor(value: Any) -> bool:
    # By duck type: the core of the checks does not need torch to be imported.
    return hasattr(value, "detach") and hasattr(value, "shape")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _structure_problem(got: Any, expected: Any) -> str | None:
    if _is_tensor(expected):
        if not _is_tensor(got):
            return f"A tensor is expected; this is {type(got).__name__}."
        if tuple(got.shape) != tuple(expected.shape):
            return f"The shape should be {tuple(expected.shape)}; yours is {tuple(got.shape)}."
        return None
    if isinstance(expected, (tuple, list)):
        if not isinstance(got, (tuple, list)):
            return f"{len(expected)} values are expected; this is one {type(got).__name__}."
        if len(got) != len(expected):
            return f"{len(expected)} values are expected; yours has {len(got)}."
        parts = (_structure_problem(g, e) for g, e in zip(got, expected, strict=True))
        return next((part for part in parts if part), None)
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping):
            return f"A dictionary is expected; this is {type(got).__name__}."
        if set(got) != set(expected):
            return f"The keys should be {sorted(expected)}; yours are {sorted(map(str, got))}."
        return None
    if _is_number(expected):
        scalar = got.item() if _is_tensor(got) and got.ndim == 0 else got
        return (
            None if _is_number(scalar) else f"A number is expected; this is {type(got).__name__}."
        )
    if isinstance(expected, bool):
        truth = got.item() if _is_tensor(got) and got.ndim == 0 else got
        if not isinstance(truth, bool):
            return f"True or False is expected; yours: {describe(got)}."
        return None
    return None if type(got) is type(expected) else f"{type(expected).__name__} is expected."


def _close(got: Any, expected: Any, tolerance: float, floor: float = 0.0) -> bool:
    if isinstance(expected, Mapping):
        return all(difference(got[key], expected[key], tolerance) is None for key in expected)
    if _is_tensor(expected):
        got, expected = got.detach().reshape(-1).tolist(), expected.reshape(-1).tolist()
    if isinstance(expected, (tuple, list)):
        # A number that is tiny beside its neighbours carries their rounding.
        sizes = [abs(e) for e in expected if _is_number(e) and math.isfinite(e)]
        floor = max(sizes, default=0.0) * tolerance * 1e-3
        return all(_close(g, e, tolerance, floor) for g, e in zip(got, expected, strict=True))
    if _is_number(expected):
        number = got.item() if _is_tensor(got) else got
        if math.isnan(expected) or math.isnan(number):
            return math.isnan(expected) and math.isnan(number)
        return math.isclose(number, expected, rel_tol=tolerance, abs_tol=floor)
    return bool(got == expected)
