"""Checks of lesson 00: bytes of a tensor, and what three optimizers store for a matrix."""

import torch

from utils.checks.core import Case, Misconception, check_function, check_value, exercise


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


@exercise("0.1")
def tensor_bytes(answer) -> str:
    """Check `tensor_bytes(tensor)`: the bytes of its numbers."""
    cases = [
        Case("a 3 x 5 tensor of float32", (torch.ones(3, 5),)),
        Case("a 2 x 3 x 7 tensor of bfloat16", (torch.ones(2, 3, 7, dtype=torch.bfloat16),)),
        Case("11 numbers of uint8", (torch.ones(11, dtype=torch.uint8),)),
        Case("one number of float64, no dimension", (torch.tensor(2.0, dtype=torch.float64),)),
        Case("an empty tensor of shape (0, 4)", (torch.ones(0, 4),)),
    ]
    misconceptions = [
        Misconception(
            torch.numel, "you counted the numbers; each of them takes element_size() bytes."
        ),
        Misconception(
            lambda t: t.numel() * 4,
            "you took 4 bytes for each number; that is true of float32 only. "
            "Ask the tensor how large its elements are.",
        ),
        Misconception(
            lambda t: t.numel() * t.element_size() * 8, "you counted bits; a byte has 8 of them."
        ),
        Misconception(
            lambda t: len(t) * t.element_size(),
            "you counted the rows only: len() gives the first dimension.",
        ),
        Misconception(
            lambda t: t.element_size(), "that is the size of one element; how many are there?"
        ),
    ]
    return check_function(answer, _bytes, cases, misconceptions)


ROWS, COLUMNS = 768, 3072
_NUMBERS = ROWS * COLUMNS


@exercise("0.2")
def adamw_bytes(answer) -> str:
    """Check the prediction: bytes of AdamW's two moments for a 768 x 3072 matrix in FP32."""
    return check_value(
        answer,
        2 * _NUMBERS * 4,
        [
            Misconception(
                _NUMBERS * 4, "that is one state; AdamW keeps two, the first and second moment."
            ),
            Misconception(2 * _NUMBERS, "you counted numbers; each takes 4 bytes in FP32."),
            Misconception(
                2 * _NUMBERS * 4 / 1024**2, "that is in MiB; the question asks for bytes."
            ),
            Misconception(2 * _NUMBERS * 4 / 10**6, "that is in MB; the question asks for bytes."),
            Misconception(3 * _NUMBERS * 4, "only the two moments count here, not the weights."),
            Misconception(2 * (ROWS + COLUMNS) * 4, "a matrix holds rows x columns numbers."),
        ],
    )


@exercise("0.3")
def stored_bytes(answer) -> str:
    """Check `stored_bytes(rows, columns)`: bytes of state of AdamW, Adafactor and 8-bit Adam."""

    def reference(rows, columns):
        return {
            "AdamW": 8 * rows * columns,
            "Adafactor": 4 * (rows + columns),
            "8-bit Adam": 2 * rows * columns,
        }

    def with_changed(name, formula):
        return lambda rows, columns: {**reference(rows, columns), name: formula(rows, columns)}

    cases = [
        Case(f"rows={rows}, columns={columns}", (rows, columns))
        for rows, columns in ((6, 8), (1, 5), (1024, 3), (7, 7))
    ]
    misconceptions = [
        Misconception(
            with_changed("Adafactor", lambda r, c: 4 * r * c),
            "Adafactor: for each row one number and for each column one number, not their product.",
        ),
        Misconception(
            with_changed("Adafactor", lambda r, c: 8 * (r + c)),
            "Adafactor keeps row and column statistics of one moment only, the second.",
        ),
        Misconception(
            with_changed("Adafactor", lambda r, c: r + c),
            "Adafactor's numbers are stored in 32 bits: 4 bytes each.",
        ),
        Misconception(
            with_changed("8-bit Adam", lambda r, c: r * c),
            "8-bit Adam still keeps two moments; only each number is smaller.",
        ),
        Misconception(
            with_changed("8-bit Adam", lambda r, c: 16 * r * c),
            "8-bit Adam: 8 bits are one byte.",
        ),
        Misconception(
            with_changed("AdamW", lambda r, c: 4 * r * c),
            "AdamW keeps two moments, each as large as the matrix.",
        ),
    ]
    return check_function(answer, reference, cases, misconceptions)
