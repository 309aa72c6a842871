"""Bytes in units that say which megabyte they mean."""

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4

_BINARY = ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_DECIMAL = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def mib(num_bytes: float) -> float:
    """Return `num_bytes` in MiB: num_bytes / 1024**2."""
    return num_bytes / MIB


def mb(num_bytes: float) -> float:
    """Return `num_bytes` in MB: num_bytes / 10**6, a larger number than in MiB."""
    return num_bytes / 10**6


def format_bytes(num_bytes: float, decimal: bool = False, digits: int = 2) -> str:
    """Return the size as text with its unit, such as "501.89 MiB".

    The unit is the largest one that leaves at least 1: bytes, KiB, MiB, GiB, TiB (powers of 1024),
    or with `decimal=True` bytes, kB, MB, GB, TB (powers of 1000).
    """
    for size, name in _DECIMAL if decimal else _BINARY:
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:,.{digits}f} {name}"
    return f"{num_bytes:,} byte" + ("" if num_bytes == 1 else "s")
