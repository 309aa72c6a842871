"""The text classification data of the lessons: the embedded reviews, or any set of the same kind.

`COURSE_DATASET` names another data set: a hub id or a local folder. `COURSE_DATASET_CONFIG` names
its configuration where it has several, for instance `nyu-mll/glue` with `mrpc`.
"""

import csv
import os
from pathlib import Path

from datasets import (
    ClassLabel,
    Dataset,
    DatasetDict,
    Features,
    Value,
    load_dataset,
)

from utils.environment import ROOT

ASSETS = ROOT / "utils" / "assets"
REVIEWS, TOKENIZER = ASSETS / "reviews", ASSETS / "tokenizer"
LABELS = ["negative", "positive"]
SPLITS = ("train", "validation")


class NotLoadedError(OSError):
    """A data set, model or tokenizer could not be loaded; the text says what to do."""


def load(name: str | None = None, config: str | None = None) -> DatasetDict:
    """Return a data set with the splits "train" and "validation", text columns and "label".

    `name` is a hub id or a local folder, `config` a configuration of it; None stands for
    `COURSE_DATASET` and `COURSE_DATASET_CONFIG`, and where these are not set for the reviews that
    come with the course, which need no network. One text column is a task on single sentences, two
    are one on pairs. A column "labels" is renamed; other columns stay as they are.
    Raises: NotLoadedError if the hub is not reached or has no such data set; ValueError, naming what was
    found, for missing splits, no label, labels that are not 0 to n - 1, or no text.
    """
    name = name or os.environ.get("COURSE_DATASET")
    config = config or os.environ.get("COURSE_DATASET_CONFIG")
    if not name:
        if config:
            raise ValueError(f"COURSE_DATASET_CONFIG is {config!r}, but COURSE_DATASET is not set")
        return load_reviews()
    return _checked(_load_named(name, config), name)


def load_reviews(folder: Path = REVIEWS) -> DatasetDict:
    """Return the embedded reviews: columns "sentence" and "label" (0 negative, 1 positive).

    They are read into memory without a cache, so that a read-only home directory is no obstacle.
    """
    features = Features({"sentence": Value("string"), "label": ClassLabel(names=LABELS)})
    splits = {}
    for split in SPLITS:
        with open(folder / f"{split}.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        columns = {
            "sentence": [row["sentence"] for row in rows],
            "label": [int(row["label"]) for row in rows],
        }
        splits[split] = Dataset.from_dict(columns, features=features)
    return DatasetDict(splits)


def _load_named(name: str, config: str | None) -> DatasetDict:
    try:
        return load_dataset(os.path.expanduser(name), config)
    except Exception as error:
        # load_dataset raises a dozen types, and says "not found" where the network is down.
        raise not_loaded("data set", name, "COURSE_DATASET", error) from error


def not_loaded(kind: str, name: str, variable: str, error: Exception) -> NotLoadedError:
    """Return the error that says what was tried and how to go on offline, in one sentence."""
    where = os.path.expanduser(name)
    looks_local = where.startswith((".", "/", "\\")) or os.path.isabs(where)
    if os.path.isdir(where):
        tried = f"the folder {name!r} does not hold a {kind} that can be read"
    elif looks_local:
        tried = f"there is no folder {name!r}"
    else:
        tried = f"{name!r} is no folder here, and the hub was not reached or does not have it"
    reason = f"{type(error).__name__}: {error}".strip().split("\n")[0]
    return NotLoadedError(
        f"The {kind} was not loaded: {tried}. To go on offline, unset {variable} (the course then "
        f"uses its own {kind}) or set it to a local folder. [{reason}]"
    )


def _checked(dataset: DatasetDict, name: str) -> DatasetDict:
    missing = [split for split in SPLITS if split not in dataset]
    if missing:
        raise ValueError(
            f"the data set {name!r} has the splits {', '.join(dataset)}; the lessons need "
            f"{' and '.join(SPLITS)}"
        )
    dataset = DatasetDict({split: dataset[split] for split in SPLITS})
    columns = dataset["train"].column_names
    if "label" not in columns and "labels" in columns:
        dataset = dataset.rename_column("labels", "label")
    elif "label" not in columns:
        raise ValueError(f"the data set {name!r} has no column 'label': {', '.join(columns)}")
    text_columns(dataset)
    found = sorted({label for split in SPLITS for label in dataset[split].unique("label")}, key=str)
    if not all(isinstance(label, int) and label >= 0 for label in found):
        raise ValueError(
            f"the labels of {name!r} are {found[:5]}; the lessons need whole numbers from 0 on "
            "(-1 often stands for a split without labels)"
        )
    if found != list(range(num_labels(dataset))):
        raise ValueError(f"the labels of {name!r} are {found[:5]}; they should run from 0 on")
    return dataset


def text_columns(dataset: DatasetDict) -> list[str]:
    """Return the one or two columns of text, in order; two stand for a sentence pair.

    Raises: ValueError if there are none or more than two, naming the columns.
    """
    features = dataset["train"].features
    texts = [name for name, feature in features.items() if feature == Value("string")]
    if not 1 <= len(texts) <= 2:
        raise ValueError(
            f"one or two columns of text are needed, found {texts} among {', '.join(features)}"
        )
    return texts


def num_labels(dataset: DatasetDict) -> int:
    """Return how many classes the data set has."""
    feature = dataset["train"].features["label"]
    if isinstance(feature, ClassLabel):
        return feature.num_classes
    return max(max(dataset[split]["label"]) for split in SPLITS) + 1


def tokenize(dataset: DatasetDict, tokenizer, max_length: int = 64) -> DatasetDict:
    """Return `dataset` with the tokenizer's columns and "label"; texts are cut at `max_length`.

    Sentence pairs are joined as the tokenizer joins them. Nothing is padded: a collator pads each
    batch to its own longest text.
    """
    texts = text_columns(dataset)

    def tokenize_batch(rows):
        return tokenizer(*(rows[name] for name in texts), truncation=True, max_length=max_length)

    others = [name for name in dataset["train"].column_names if name != "label"]
    return dataset.map(tokenize_batch, batched=True, remove_columns=others)
