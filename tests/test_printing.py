"""Printed numbers: stable ones, and bands that are checked."""

import pytest

from utils.printing import about, stable


@pytest.fixture
def strict(monkeypatch):
    monkeypatch.setenv("COURSE_STRICT", "1")


def test_stable_prints_the_digits():
    assert stable(0.12345, 2) == "0.12"
    assert stable(float("nan"), 2) == "nan"


@pytest.mark.usefixtures("strict")
def test_stable_refuses_an_edge_while_lessons_are_released():
    assert stable(0.1249, 2) == "0.12"
    with pytest.raises(ValueError, match="rounding edge"):
        stable(0.125000001, 2)


def test_about_says_whether_the_value_lies_in_the_band(monkeypatch):
    monkeypatch.delenv("COURSE_STRICT", raising=False)
    assert about(0.861, 0.88, 0.02) == "0.88 ± 0.02"
    assert about(0.9001, 0.88, 0.02) == "0.9001, outside 0.88 ± 0.02"
    assert about(float("nan"), 0.88, 0.02) == "nan, outside 0.88 ± 0.02"
    with pytest.raises(ValueError, match="width must be above 0"):
        about(0.9, 0.88, 0.0)


@pytest.mark.usefixtures("strict")
def test_about_refuses_the_outer_half_while_lessons_are_released():
    assert about(0.871, 0.88, 0.02) == "0.88 ± 0.02"
    for value in (0.868, 0.95, float("nan")):
        with pytest.raises(ValueError, match="outer half"):
            about(value, 0.88, 0.02)
