"""Predicted bytes equal measured bytes: twelve architectures by every optimizer with a formula."""

import bitsandbytes
import pytest
import torch
import transformers
from transformers.optimization import Adafactor

from utils.memory import estimate_optimizer_state, measure_optimizer_state
from utils.memory_command import build_on_meta

_TEXT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_GATED = {**_TEXT, "intermediate_size": 96, "num_key_value_heads": 2, "vocab_size": 150}
_PICTURE = {**_TEXT, "intermediate_size": 96, "image_size": 16, "patch_size": 4}


def _llava():
    return transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**_PICTURE),
        text_config=transformers.LlamaConfig(**_GATED),
        architectures=["LlavaForConditionalGeneration"],
    )


ARCHITECTURES = {
    "DistilBERT": lambda: transformers.DistilBertConfig(
        vocab_size=150,
        dim=64,
        hidden_dim=96,
        n_layers=2,
        n_heads=4,
        architectures=["DistilBertForSequenceClassification"],
    ),
    "BERT": lambda: transformers.BertConfig(
        vocab_size=150, intermediate_size=96, **_TEXT, architectures=["BertForMaskedLM"]
    ),
    "GPT-2": lambda: transformers.GPT2Config(
        vocab_size=150, n_embd=64, n_layer=2, n_head=4, architectures=["GPT2LMHeadModel"]
    ),
    "T5": lambda: transformers.T5Config(
        vocab_size=150,
        d_model=64,
        d_ff=96,
        d_kv=16,
        num_layers=2,
        num_heads=4,
        architectures=["T5ForConditionalGeneration"],
    ),
    "Llama": lambda: transformers.LlamaConfig(**_GATED, architectures=["LlamaForCausalLM"]),
    "Mixtral": lambda: transformers.MixtralConfig(
        **_GATED, num_local_experts=4, architectures=["MixtralForCausalLM"]
    ),
    "ViT": lambda: transformers.ViTConfig(**_PICTURE, architectures=["ViTForImageClassification"]),
    "ConvNeXt": lambda: transformers.ConvNextConfig(
        hidden_sizes=[16, 32, 64, 80],
        depths=[1, 1, 1, 1],
        architectures=["ConvNextForImageClassification"],
    ),
    "Whisper": lambda: transformers.WhisperConfig(
        vocab_size=150,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=96,
        decoder_ffn_dim=96,
        pad_token_id=0,
        architectures=["WhisperForConditionalGeneration"],
    ),
    "Mamba": lambda: transformers.MambaConfig(
        vocab_size=150,
        hidden_size=64,
        state_size=8,
        num_hidden_layers=2,
        architectures=["MambaForCausalLM"],
    ),
    "Llava": _llava,
    "ModernBERT": lambda: transformers.ModernBertConfig(
        vocab_size=150,
        intermediate_size=96,
        pad_token_id=0,
        **_TEXT,
        architectures=["ModernBertForMaskedLM"],
    ),
}
FIXED = {"lr": 1e-3, "relative_step": False, "scale_parameter": False}
OPTIMIZERS = {
    "AdamW": torch.optim.AdamW,
    "AdamW foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "AdamW fused": lambda p: torch.optim.AdamW(p, fused=True),
    "AdamW amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "Adam": torch.optim.Adam,
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "RMSprop": torch.optim.RMSprop,
    "RMSprop centered": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9),
    "Adagrad": torch.optim.Adagrad,
    "torch Adafactor": torch.optim.Adafactor,
    "transformers Adafactor": lambda p: Adafactor(p, **FIXED),
    "transformers Adafactor beta1": lambda p: Adafactor(p, beta1=0.9, **FIXED),
    "Muon": lambda p: torch.optim.Muon(p, ns_steps=1),
    "AdamW8bit": bitsandbytes.optim.AdamW8bit,
    "PagedAdamW8bit": bitsandbytes.optim.PagedAdamW8bit,
}


def parameters(model, optimizer):
    chosen = [p for p in model.parameters() if p.requires_grad]
    return [p for p in chosen if p.ndim == 2] if optimizer == "Muon" else chosen


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_optimizer_is_predicted_to_the_byte(architecture, dtype):
    bitsandbytes.optim.GlobalOptimManager.get_instance().initialize()
    config = ARCHITECTURES[architecture]()
    on_meta = build_on_meta(config, dtype)
    assert type(on_meta).__name__ == config.architectures[0]
    model = type(on_meta)._from_config(ARCHITECTURES[architecture]()).to(dtype)
    cells = {}
    for name, build in OPTIMIZERS.items():
        for parameter in model.parameters():
            parameter.grad = None
        trained = parameters(model, name)
        optimizer = build(trained)
        # Adagrad has its state before any step; all others are predicted without memory.
        source = optimizer if name == "Adagrad" else build(parameters(on_meta, name))
        predicted = estimate_optimizer_state(source)
        for parameter in trained:
            parameter.grad = torch.full_like(parameter, 1e-3)
        optimizer.step()
        cells[name] = predicted, measure_optimizer_state(optimizer)
    assert len(cells) == len(OPTIMIZERS)
    assert {n: (p.bytes, m.bytes) for n, (p, m) in cells.items() if p != m} == {}
