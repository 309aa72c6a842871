"""`python -m utils memory`: what it reads, what it says, and what it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

from utils.__main__ import main
from utils.memory import OPTIMIZER_NAMES, count_parameters
from utils.memory_command import (
    NOTHING_FITS,
    as_text,
    build_on_meta,
    load_config,
    lora_targets,
    parse_size,
    report,
)

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "vocab_size": 163840,
    "hidden_size": 7168,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}


def written(tmp_path, values, name="model.json"):
    path = tmp_path / name
    path.write_text(json.dumps(values), encoding="utf-8")
    return str(path)


def test_a_70b_model(tmp_path):
    result = report(written(tmp_path, LLAMA))
    assert result["parameters"] == result["trainable"] == 68_976_648_192
    totals = {name: plan["optimizer"] for name, plan in result["plans"].items()}
    assert totals["adamw_torch"] == 551_813_188_428
    assert totals["adafactor"] == 57_373_516
    # 140,108,818,688 with everything in 8 bits; Trainer keeps the embedding in 32.
    embedding = 32000 * 8192
    in_8_bits = 2 * (embedding + 4 * embedding // 256)
    assert totals["adamw_bnb_8bit"] == 140_108_818_688 - in_8_bits + 8 * embedding
    assert totals["sgd"] == 0
    assert any("32 bits" in note for note in result["notes"])


def test_a_model_of_a_trillion_parameters_without_architectures_named(tmp_path):
    result = report(written(tmp_path, DEEPSEEK), "adafactor", "bf16", device_memory=2**42)
    assert result["model"] == "DeepseekV3ForCausalLM"
    assert result["parameters"] == 1_026_408_209_408
    assert result["plans"]["adafactor"]["weights"] == 2 * 1_026_408_209_408
    assert result["fits"] == {"adafactor": True}


def test_the_command_takes_little_memory(tmp_path):
    """In a process of its own: the peak, with every import, stays under 1 GB."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("the peak of this program alone is read from Linux's /proc")
    path = written(tmp_path, DEEPSEEK)
    code = (
        "import re, sys\n"
        "from utils.__main__ import main\n"
        f"status = main(['memory', {path!r}])\n"
        f"peak = int(re.search(r'VmHWM:\\s+(\\d+) kB', open({str(status)!r}).read())[1]) * 1024\n"
        "sys.exit(status or peak > 10**9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GiB", 24 * 2**30), ("80 GB", 80 * 10**9), ("1.5tib", 3 * 2**39), ("500MB", 5 * 10**8)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["24", "GiB", "-1GiB", "0GB", "24 G", "24KiB", "", "1e3GB"])
def test_sizes_need_a_unit(text):
    with pytest.raises(ValueError, match="with one of the units MiB, GiB"):
        parse_size(text)


def small(**changes):
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 150}
    return {**LLAMA, **sizes, "num_attention_heads": 4, "num_key_value_heads": 2} | changes


def test_folders_files_and_architectures(tmp_path):
    config = transformers.BertConfig(hidden_size=64, num_attention_heads=4, num_hidden_layers=1)
    config.architectures = ["BertForMaskedLM"]
    config.save_pretrained(tmp_path / "bert")
    assert report(str(tmp_path / "bert"))["model"] == "BertForMaskedLM"
    without = small()
    del without["architectures"]
    assert report(written(tmp_path, without))["model"] == "LlamaForCausalLM"
    assert report(written(tmp_path, {"model_type": "vit"}))["model"] == "ViTModel"


def test_tied_weights_count_once(tmp_path):
    model = report(written(tmp_path, {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}))
    assert model["parameters"] == 124_439_808
    assert model["plans"]["adamw_torch"]["optimizer"] == 995_519_056


def test_lora_and_what_fits_first(tmp_path):
    path = written(tmp_path, small())
    full = report(path, "adamw_torch")["plans"]["adamw_torch"]["total"]
    fitting = report(path, "adamw_torch", device_memory=full)
    assert fitting["fits"] == {"adamw_torch": True}
    assert "first_that_fits" not in fitting
    tight = report(path, "adamw_torch", device_memory=full - 1)
    assert tight["fits"] == {"adamw_torch": False}
    assert tight["first_that_fits"].startswith("--optimizer adamw_bnb_8bit --dtype fp32: ")
    nothing = report(path, device_memory=1000)
    assert nothing["first_that_fits"] is None
    assert NOTHING_FITS in as_text(nothing)
    lora = report(path, "adamw_torch", "bf16", lora=2)
    assert lora["trainable"] == 2 * 2 * ((64 + 64) + (64 + 32))
    bf16_weights = 2 * (lora["parameters"] - lora["trainable"])
    choice = report(path, device_memory=bf16_weights + 90_000)["first_that_fits"]
    assert choice.startswith("--optimizer adafactor --dtype bf16 --lora 16: ")


@pytest.mark.parametrize(
    ("config", "targets"),
    [
        (transformers.DistilBertConfig(), ("q_lin", "v_lin")),
        (transformers.BertConfig(), ("query", "value")),
        (transformers.T5Config(), ("q", "v")),
    ],
)
def test_lora_finds_the_projections(config, targets):
    assert lora_targets(build_on_meta(config, torch.float32)) == targets


def test_lora_says_what_there_is_where_it_finds_none():
    with pytest.raises(ValueError, match="the linear layers are named"):
        lora_targets(build_on_meta(transformers.ConvNextConfig(), torch.float32))


def test_the_table_and_the_json_agree(tmp_path, capsys):
    path = written(tmp_path, small())
    assert main(["memory", path, "--optimizer", "adafactor", "--device-memory", "1GiB"]) == 0
    table = capsys.readouterr().out
    assert main(["memory", path, "--optimizer", "adafactor", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    for size in result["plans"]["adafactor"].values():
        assert f"{size:,}" in table
    assert "fits into 1.00 GiB" in table
    assert "Activations, buffers and temporary memory come on top" in table
    assert main(["memory", path, "--device-memory", "0.1MB"]) == 1
    assert "does not fit into" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["./no/such/file.json"], "there is no file or folder './no/such/file.json'"),
        (["no-such-org/no-such-model"], "taken as a hub id"),
        (["MODEL", "--optimizer", "adamw"], "no formula for --optimizer adamw; there is one for"),
        (["MODEL", "--device-memory", "24"], "got '24'"),
        (["MODEL", "--lora", "0"], "rank must be a whole number of at least 1, got 0"),
    ],
)
def test_one_sentence_for_what_cannot_be_done(arguments, words, tmp_path, capsys):
    path = written(tmp_path, small())
    assert main(["memory", *(path if a == "MODEL" else a for a in arguments)]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "taken as a file"),
        ('{"hidden_size": 3}', "it has no model_type"),
        ('{"model_type": "nonsense"}', "nonsense"),
        ("[1, 2]", "taken as a file"),
    ],
)
def test_broken_files(content, words, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        load_config(str(path))


def test_every_optimizer_with_a_formula_can_be_named(tmp_path):
    path = written(tmp_path, small())
    model = build_on_meta(load_config(path), torch.float32)
    for name in OPTIMIZER_NAMES:
        plan = report(path, name)["plans"][name]
        assert plan["weights"] == 4 * count_parameters(model).total
