"""One check of whole numbers for all of `utils`."""


def whole_number(name: str, value: object, low: int = 1) -> None:
    """Return nothing if `value` is an int of at least `low`; True and False are no numbers.

    Raises: ValueError that names `name`, what is accepted and the value given.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}")
