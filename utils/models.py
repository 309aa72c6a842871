"""The models and tokenizers of the lessons: a small one from scratch, or any with the same use.

`COURSE_MODEL` names another model: a hub id (`distilbert-base-cased`) or a local folder.
"""

import os

import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DistilBertConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from utils.data import LABELS, TOKENIZER, not_loaded

VARIABLE = "COURSE_MODEL"


def small_config(num_labels: int = 2) -> DistilBertConfig:
    """Return the configuration of the course's small DistilBERT: 2 layers of width 128.

    Weights start with a standard deviation of 0.05 in place of DistilBERT's 0.02, and there is no
    dropout: a model this narrow then learns the task in seconds.
    """
    config = DistilBertConfig(
        vocab_size=1000,
        max_position_embeddings=64,
        dim=128,
        hidden_dim=256,
        n_layers=2,
        n_heads=4,
        dropout=0.0,
        attention_dropout=0.0,
        seq_classif_dropout=0.0,
        initializer_range=0.05,
        num_labels=num_labels,
    )
    if num_labels == len(LABELS):
        config.id2label = dict(enumerate(LABELS))
        config.label2id = {label: number for number, label in enumerate(LABELS)}
    return config


def load_model(name: str | None = None, *, num_labels: int = 2, seed: int = 0) -> PreTrainedModel:
    """Return a sequence classifier in FP32 whose new weights are drawn with `seed`.

    `name` is a hub id or a local folder; None stands for `COURSE_MODEL`, and where that is not set
    for the small DistilBERT from scratch, which needs no network. The state of torch's random
    generator is left as it was.
    Raises: NotLoadedError if the hub is not reached or has no such model.
    """
    name = name or os.environ.get(VARIABLE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if not name:
            return AutoModelForSequenceClassification.from_config(small_config(num_labels))
        try:
            # Since version 5 transformers would keep the type that the weights were saved in.
            return AutoModelForSequenceClassification.from_pretrained(
                os.path.expanduser(name), num_labels=num_labels, dtype=torch.float32
            )
        except (OSError, ValueError) as error:
            raise not_loaded("model", name, VARIABLE, error) from error


def load_tokenizer(name: str | None = None) -> PreTrainedTokenizerBase:
    """Return the tokenizer of `load_model`'s model; None and errors as there."""
    name = name or os.environ.get(VARIABLE)
    try:
        return AutoTokenizer.from_pretrained(os.path.expanduser(name or str(TOKENIZER)))
    except (OSError, ValueError) as error:
        raise not_loaded("tokenizer", name or str(TOKENIZER), VARIABLE, error) from error
