"""Plans, LoRA on the meta device, traffic: against real tensors and real steps."""

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

from utils.memory import (
    add_lora,
    checkpointed_activations,
    count_parameters,
    measure_optimizer_state,
    plan_training,
)
from utils.plots import choosing as pictures
from utils.traffic import memory_traffic

TINY = LlamaConfig(
    vocab_size=120,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)


def tiny(device="cpu"):
    with torch.device(device):
        return AutoModelForCausalLM.from_config(TINY)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rank", [None, 3])
def test_a_plan_equals_what_a_real_step_holds(dtype, rank):
    def made(device):
        model = tiny(device).to(dtype)
        return add_lora(model, rank) if rank else model

    plan = plan_training(made("meta"), "adamw_torch")
    model = made("cpu")
    trained = [p for p in model.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW(trained)
    optimizer.step()
    assert plan.weights == sum(p.numel() * p.element_size() for p in model.parameters())
    assert plan.gradients == sum(p.grad.numel() * p.grad.element_size() for p in trained)
    assert plan.optimizer == measure_optimizer_state(optimizer).bytes
    assert plan.activations == 0
    assert plan.total == plan.weights + plan.gradients + plan.optimizer


def test_lora_of_llama_7b_has_the_known_size():
    """8,388,608 parameters with rank 16 on the query and value projections of 32 layers."""
    with torch.device("meta"):
        model = add_lora(AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=32000)), 16)
    assert count_parameters(model).trainable == 2 * 32 * 16 * (4096 + 4096)
    assert count_parameters(model).frozen == 6_738_415_616


def test_lora_refuses_what_it_cannot_do():
    for rank in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="rank must be a whole number"):
            add_lora(tiny("meta"), rank)
    with pytest.raises(ValueError, match="no linear layer of the model is named query"):
        add_lora(tiny("meta"), 2, ["query"])
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="q_proj or v_proj"):
        add_lora(model, 2)
    assert all(p.requires_grad for p in model.parameters())


def test_activations():
    # 2 layers x 5 values x 2 bytes, and two FP32 numbers for each of 7 words, for 10 tokens
    assert checkpointed_activations(2, 5, 7, 10) == 10 * (20 + 56)
    assert checkpointed_activations(2, 5, 7, 10, 4) == 10 * (40 + 56)
    with pytest.raises(ValueError, match="tokens must be a whole number of at least 1, got 0"):
        checkpointed_activations(2, 5, 7, 0)
    with pytest.raises(ValueError, match="activations must be a whole number of at least 0"):
        plan_training(tiny("meta"), "adafactor", -1)
    with pytest.raises(ValueError, match="no formula for optim='adam'"):
        plan_training(tiny("meta"), "adam")


def ready(build):
    weight = nn.Parameter(torch.ones(64, 32))
    weight.grad = torch.ones_like(weight)
    optimizer = build([weight])
    optimizer.step()
    return optimizer, weight


def test_traffic_of_single_operations():
    one, two = torch.ones(100), torch.ones(100)
    assert memory_traffic(lambda: one + two) == 1200
    assert memory_traffic(lambda: one.add_(two)) == 1200
    assert memory_traffic(lambda: one.view(10, 10).t()[2:]) == 0
    assert memory_traffic(lambda: one.view(10, 10).reshape(-1).mul_(2)) == 800
    assert memory_traffic(lambda: one.add_(two), read_only=[one]) == 1200 - 400 + 400
    assert memory_traffic(lambda: torch._foreach_add_([one, one], 1.0)) == 1600
    assert memory_traffic(lambda: one.sum()) == 404
    assert memory_traffic(lambda: one.bfloat16()) == 600


def test_traffic_of_fused_adamw_is_the_least_there_can_be():
    optimizer, weight = ready(lambda p: torch.optim.AdamW(p, fused=True))
    moved = memory_traffic(optimizer.step, [weight.grad]) / weight.numel()
    assert 28 <= moved < 28.1
    optimizer, weight = ready(lambda p: torch.optim.AdamW(p, foreach=False))
    assert 84 <= memory_traffic(optimizer.step, [weight.grad]) / weight.numel() < 84.1


def test_pictures_draw_what_they_are_given():
    points = {"one": (2.0, 32.0, 0.9), "two": (2.0, 8.0, 0.8)}
    figure = pictures.measured_trade_off(points, {"one": "high", "two": "less"}, 0.6)
    first, second = (c for c in figure.axes[0].collections)
    assert first.get_sizes()[0] / second.get_sizes()[0] == pytest.approx(0.3 / 0.2)
    assert "one: 2 numbers a parameter of 32 bits, accuracy high" in figure.get_label()
    for bad, words in ((points, "quality for each"), ({"one": (2.0, 0.0, 0.9)}, "above 0")):
        with pytest.raises(ValueError, match=words):
            pictures.measured_trade_off(bad, {"one": "high"}, 0.6)
    plan = plan_training(tiny("meta"), "adamw_torch", 1000)
    figure = pictures.plans({"tiny": plan, "again": plan}, [24])
    widths = sum(bar.get_width() for bar in figure.axes[0].patches) * 1024**3
    assert widths == pytest.approx(2 * plan.total)
    assert "tiny: " in figure.get_label()
    for bad in (({}, [24]), ({"tiny": plan}, [0])):
        with pytest.raises(ValueError, match="need a plan"):
            pictures.plans(*bad)
