"""`make bench`: its predictions are the known ones, its table and its turns are right."""

from utils import bench


def test_predictions_of_tied_models(monkeypatch):
    chosen = {name: bench._CONFIGURATIONS[name] for name in ("GPT-2", "T5-small")}
    monkeypatch.setattr(bench, "_CONFIGURATIONS", chosen)
    gpt2, t5 = bench.predictions()
    assert (gpt2["exact_bytes"], gpt2["accelerate_bytes"]) == (995_519_056, 1_304_297_472)
    assert (t5["exact_bytes"], t5["accelerate_bytes"]) == (484_053_516, 878_841_856)
    assert t5["accelerate_error"] == 878_841_856 / 484_053_516


def test_another_tool_joins_if_it_is_installed(monkeypatch):
    monkeypatch.setattr(bench, "_CONFIGURATIONS", {"BERT": bench._CONFIGURATIONS["BERT"]})
    monkeypatch.setattr(bench, "_deepspeed_parameters", lambda: lambda model: 1000)
    (bert,) = bench.predictions()
    assert bert["deepspeed_bytes"] == 8000
    assert bert["deepspeed_error"] == 8000 / bert["exact_bytes"]


def test_the_table_has_a_line_for_each_row():
    rows = [
        {"name": "a", "bytes": 1234567, "ratio": 0.5},
        {"name": "bb", "bytes": 1, "ratio": 12.0},
    ]
    assert bench.as_table(rows).splitlines() == [
        "name      bytes  ratio",
        "a     1,234,567   0.50",
        "bb            1  12.00",
    ]


def test_contestants_take_turns():
    calls = []
    contestants = {name: lambda name=name: calls.append(name) for name in "ab"}
    found = bench.fastest_in_turns(contestants, 3)
    assert calls == ["a", "b"] * 3
    assert set(found) == {"a", "b"}
    assert all(seconds >= 0 for seconds in found.values())
