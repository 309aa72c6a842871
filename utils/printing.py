"""Numbers that print the same on every CPU."""

import math
import os


def stable(value: float, digits: int, tolerance: float = 1e-5) -> str:
    """Return `value` with `digits` decimals, for outputs that are compared on other CPUs.

    Trained quantities differ a little between instruction sets and math libraries, by at most
    `tolerance` for this course's FP32 runs. A value nearer than that to a rounding edge could print
    another last digit elsewhere. While the lessons are released (COURSE_STRICT=1 is set) such a
    value raises ValueError, so that the lesson's author prints fewer digits; learners never see it.
    """
    if not math.isfinite(value):
        return str(value)
    scaled = abs(value) * 10**digits
    distance = abs(scaled - math.floor(scaled) - 0.5) / 10**digits
    if os.environ.get("COURSE_STRICT") == "1" and distance <= tolerance:
        raise ValueError(
            f"{value!r} lies within {tolerance} of a rounding edge at {digits} decimals: "
            "print fewer digits or a comparison"
        )
    return f"{value:.{digits}f}"


def about(value: float, expected: float, width: float) -> str:
    """Return "0.88 ± 0.02" if `value` lies within `width` of `expected`, else the value and both.

    For results of a whole training: rounding differs between CPUs, hundreds of steps amplify it, and
    accuracy moves by a percent. `expected` is written in the lesson and checked on every run. While
    the lessons are released (COURSE_STRICT=1) a value in the outer half of the band raises
    ValueError, so that another CPU stays inside. Raises ValueError unless `width` is above 0.
    """
    if not width > 0:
        raise ValueError(f"width must be above 0, got {width!r}")
    band = f"{expected:g} ± {width:g}"
    distance = abs(value - expected)
    if os.environ.get("COURSE_STRICT") == "1" and not distance <= width / 2:
        raise ValueError(f"{value!r} lies in the outer half of {band} or outside it")
    return band if distance <= width else f"{value:.4g}, outside {band}"
