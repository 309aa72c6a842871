"""What lessons 03 and later share of training: the settings of the common task, and one loop.

Lessons 03 and 04 show their own code in full. Later lessons, which compare optimizers, call this.
"""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding, get_scheduler

from utils import metrics
from utils.require import whole_number


@dataclass(frozen=True)
class Settings:
    """The settings that every optimizer is given in this course's comparisons."""

    learning_rate: float = 1e-3
    epochs: int = 3
    batch_size: int = 32
    warmup: float = 0.1  # the share of the steps in which the learning rate rises
    max_grad_norm: float = 1.0
    seed: int = 0


def no_progress_bars() -> bool:
    """Return whether progress bars are off (TQDM_DISABLE=1), as they are when outputs are compared.

    Trainer's table in a notebook does not read that variable by itself.
    """
    return os.environ.get("TQDM_DISABLE") == "1"


def update_steps(examples: int, batch_size: int, epochs: int, accumulation: int = 1) -> int:
    """Return the number of optimizer steps: an incomplete batch or window counts as one.

    Raises: ValueError for a number that is not whole, `examples` and `epochs` below 0, or the others
    below 1.
    """
    for name, value, low in (
        ("examples", examples, 0),
        ("batch_size", batch_size, 1),
        ("epochs", epochs, 0),
        ("accumulation", accumulation, 1),
    ):
        whole_number(name, value, low)
    return epochs * math.ceil(math.ceil(examples / batch_size) / accumulation)


def train(
    model: nn.Module,
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    dataset,
    tokenizer,
    settings: Settings | None = None,
    *,
    schedule: str = "linear",
    max_steps: int | None = None,
) -> tuple[torch.optim.Optimizer, list[float]]:
    """Train `model` in place with Accelerator; return the optimizer and the loss of each step.

    `dataset` is a tokenized split. `make_optimizer` gets the model. The order of the batches depends
    on `settings.seed` alone, so that optimizers can be compared. Training stops after `max_steps`
    if given; the schedule is that of the whole training all the same.
    """
    settings = settings or Settings()
    # As Trainer does: the order of an epoch is drawn from the seed, not from the global state.
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    set_seed(settings.seed)
    loader = DataLoader(
        dataset,
        batch_size=settings.batch_size,
        shuffle=True,
        collate_fn=DataCollatorWithPadding(tokenizer),
    )
    optimizer = make_optimizer(model)
    steps = update_steps(len(dataset), settings.batch_size, settings.epochs)
    lr_scheduler = get_scheduler(
        schedule,
        optimizer=optimizer,
        num_warmup_steps=math.ceil(settings.warmup * steps),
        num_training_steps=steps,
    )
    model, optimizer, loader, lr_scheduler = accelerator.prepare(
        model, optimizer, loader, lr_scheduler
    )
    losses = []
    model.train()
    for _ in range(settings.epochs):
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if len(losses) == max_steps:
                return optimizer, losses
    return optimizer, losses


@torch.no_grad()
def predict(model: nn.Module, batches: Iterable[dict]) -> tuple[list[int], list[int]]:
    """Return the predicted and the true labels of all `batches`, in order; the mode is restored."""
    was_training = model.training
    model.eval()
    predictions, references = [], []
    for batch in batches:
        predictions += model(**batch).logits.argmax(dim=-1).tolist()
        references += batch["labels"].tolist()
    model.train(was_training)
    return predictions, references


def evaluate(model: nn.Module, dataset, tokenizer, batch_size: int = 100) -> dict[str, float]:
    """Return {"accuracy": ..., "f1": ...} of `model` on a tokenized split."""
    collate = DataCollatorWithPadding(tokenizer)
    loader = DataLoader(dataset, batch_size=batch_size, collate_fn=collate)
    device = next(model.parameters()).device
    predictions, references = predict(model, (batch.to(device) for batch in loader))
    return {
        "accuracy": metrics.accuracy(predictions, references),
        "f1": metrics.f1(predictions, references),
    }
