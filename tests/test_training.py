"""The shared loop: its step count, its reproducibility, and what Trainer does with the same."""

import pytest
import torch
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from utils import data, models, training


@pytest.fixture(scope="module")
def tokenizer():
    return models.load_tokenizer()


@pytest.fixture(scope="module")
def tokenized(tokenizer):
    reviews = data.load_reviews()
    reviews["train"] = reviews["train"].select(range(100))
    reviews["validation"] = reviews["validation"].select(range(60))
    return data.tokenize(reviews, tokenizer)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)


def test_equal_to_trainer_at_every_step(tokenized, tokenizer, tmp_path):
    settings = training.Settings(epochs=2)
    ours = models.load_model(seed=1)
    optimizer, losses = training.train(ours, adamw, tokenized["train"], tokenizer, settings)

    theirs = models.load_model(seed=1)
    args = TrainingArguments(
        output_dir=str(tmp_path),
        optim="adamw_torch",
        learning_rate=settings.learning_rate,
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        warmup_steps=settings.warmup,
        max_grad_norm=settings.max_grad_norm,
        seed=settings.seed,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(theirs, args, DataCollatorWithPadding(tokenizer), tokenized["train"])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    logged = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    assert losses == pytest.approx(logged, abs=1e-5)
    assert len(losses) == training.update_steps(100, 32, 2) == 8
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    assert next(iter(optimizer.state.values()))["step"] == 8


def test_the_seed_decides_the_order(tokenized, tokenizer):
    def losses(seed):
        settings = training.Settings(seed=seed)
        model = models.load_model(seed=1)
        return training.train(model, adamw, tokenized["train"], tokenizer, settings, max_steps=3)[1]

    assert losses(0) == losses(0)
    assert losses(0) != losses(1)
    assert len(losses(0)) == 3


def test_evaluate_counts_every_example_once_and_restores_the_mode(tokenized, tokenizer):
    model = models.load_model(seed=1).train()
    found = training.evaluate(model, tokenized["validation"], tokenizer, batch_size=7)
    assert model.training
    assert found == training.evaluate(model, tokenized["validation"], tokenizer, batch_size=60)
    assert found["accuracy"] * 60 == pytest.approx(round(found["accuracy"] * 60))


@pytest.mark.parametrize(("value", "off"), [("1", True), ("0", False)])
def test_no_progress_bars_reads_the_variable(monkeypatch, value, off):
    monkeypatch.setenv("TQDM_DISABLE", value)
    assert training.no_progress_bars() is off
