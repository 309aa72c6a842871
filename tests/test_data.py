"""The embedded reviews, and the same functions on folders of the hub's form."""

import collections
import re

import datasets
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from transformers import BertConfig, BertForSequenceClassification

from utils import data, grammar, make_data, models


@pytest.fixture(scope="module")
def reviews():
    return data.load()


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("COURSE_DATASET", "COURSE_DATASET_CONFIG", "COURSE_MODEL"):
        monkeypatch.delenv(name, raising=False)


def test_the_shipped_files_are_what_the_grammar_writes(tmp_path):
    make_data.write_all(tmp_path / "reviews", tmp_path / "tokenizer")
    for shipped, written in ((data.REVIEWS, "reviews"), (data.TOKENIZER, "tokenizer")):
        for path in (tmp_path / written).iterdir():
            assert path.read_bytes() == (shipped / path.name).read_bytes(), path.name


def test_splits_sizes_and_no_sentence_twice(reviews):
    sentences = [s.lower() for split in reviews.values() for s in split["sentence"]]
    assert {name: len(split) for name, split in reviews.items()} == make_data.SPLITS
    assert len(sentences) == len(set(sentences))
    for split in reviews.values():
        assert 0.6 < sum(split["label"]) / len(split) < 0.7


def test_noise_is_the_stated_share():
    clean = grammar.write_reviews(sum(make_data.SPLITS.values()), make_data.SEED)
    noisy = [row for rows in make_data.split_rows().values() for row in rows]
    flipped = [a.label != label for a, (_, label) in zip(clean, noisy, strict=True)]
    assert 0.03 < sum(flipped) / len(flipped) < 0.05


def test_words_alone_do_not_decide(reviews):
    texts = {name: split["sentence"] for name, split in reviews.items()}
    counter = CountVectorizer().fit(texts["train"])
    model = LogisticRegression(C=0.3, max_iter=1000)
    model.fit(counter.transform(texts["train"]), reviews["train"]["label"])
    found = model.score(counter.transform(texts["validation"]), reviews["validation"]["label"])
    majority = sum(reviews["validation"]["label"]) / len(reviews["validation"])
    assert majority < found < 0.75


def test_grammar_covers_every_kind_and_many_rare_words():
    reviews = grammar.write_reviews(3000, seed=4)
    assert {review.kind for review in reviews} == set(grammar.KINDS)
    words = collections.Counter(w for r in reviews for w in r.sentence.lower().strip(".").split())
    assert len(words) > 400
    assert sum(count <= 3 for count in words.values()) > 40


@pytest.mark.parametrize(
    ("pattern", "label"),
    [
        (r"the \w+ is not good\.", 0),
        (r"the \w+ is anything but bad\.", 1),
        (r"the \w+ is good, even though .*", 1),
        (r"granted, the \w+ is good, yet .*", 0),
        (r"although the \w+ is bad, .*", 1),
        (r"i was afraid that the \w+ is bad, but i was mistaken\.", 1),
        (r"\w+ \w+ claims that the \w+ is good, and i do not agree\.", 0),
    ],
)
def test_the_meaning_of_known_patterns(pattern, label):
    # The label is a reader's; the reviews are those before noise.
    reviews = grammar.write_reviews(10_000, make_data.SEED)
    found = [r.label for r in reviews if re.fullmatch(pattern, r.sentence.lower())]
    assert len(found) >= 1
    assert set(found) == {label}


def test_tokenizer_knows_the_training_split(reviews):
    tokenizer = models.load_tokenizer()
    encoded = data.tokenize(reviews, tokenizer)
    assert encoded["train"].column_names == ["label", "input_ids", "attention_mask"]
    ids = encoded["train"]["input_ids"]
    assert all(
        row[0] == tokenizer.cls_token_id and row[-1] == tokenizer.sep_token_id for row in ids
    )
    assert not any(tokenizer.unk_token_id in row for row in ids)
    assert len(tokenizer) == make_data.VOCABULARY == models.small_config().vocab_size
    assert max(map(len, ids)) <= models.small_config().max_position_embeddings


def test_embedded_reviews_load_as_a_hub_data_set_does(reviews, tmp_path):
    loaded = datasets.load_dataset(str(data.REVIEWS), cache_dir=str(tmp_path))
    for split in data.SPLITS:
        assert loaded[split]["sentence"] == reviews[split]["sentence"]
        assert loaded[split]["label"] == reviews[split]["label"]


PAIRS = {
    "sentence1": ["one two", "three", "four", "five six"],
    "sentence2": ["two one", "four", "three three", "six"],
    "label": [1, 0, 1, 1],
    "idx": [0, 1, 2, 3],
}


def write_parquet(folder, splits, config=None):
    """Write `splits` as parquet into `folder`, with the README of a hub data set."""
    folder.mkdir(parents=True)
    lines = ["---", "configs:", f"- config_name: {config or 'default'}", "  data_files:"]
    for split, rows in splits.items():
        datasets.Dataset.from_dict(rows).to_parquet(str(folder / f"{split}.parquet"))
        lines += [f"  - split: {split}", f"    path: {split}.parquet"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))
    return str(folder)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def test_a_folder_with_sentence_pairs_and_a_configuration(tmp_path, monkeypatch):
    folder = write_parquet(
        tmp_path / "glue", dict.fromkeys(("train", "validation", "test"), PAIRS), "mrpc"
    )
    monkeypatch.setenv("COURSE_DATASET", folder)
    monkeypatch.setenv("COURSE_DATASET_CONFIG", "mrpc")
    dataset = data.load()
    assert list(dataset) == ["train", "validation"]
    assert data.text_columns(dataset) == ["sentence1", "sentence2"]
    assert data.num_labels(dataset) == 2
    tokenizer = models.load_tokenizer()
    row = data.tokenize(dataset, tokenizer)["train"][0]
    assert row["input_ids"].count(tokenizer.sep_token_id) == 2
    assert row["label"] == 1


def test_labels_column_is_renamed_and_several_classes_counted(tmp_path):
    rows = {"text": ["a", "b", "c"], "labels": [0, 1, 2]}
    dataset = data.load(write_parquet(tmp_path / "set", {"train": rows, "validation": rows}))
    assert data.num_labels(dataset) == 3
    assert dataset["train"]["label"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        ({"train": PAIRS, "test": PAIRS}, "splits train, test"),
        (
            {s: {"text": ["a", "b"], "score": [1, 0]} for s in data.SPLITS},
            "no column 'label'",
        ),
        ({s: {"text": ["a", "b"], "label": [0, -1]} for s in data.SPLITS}, "from 0 on"),
        ({s: {"text": ["a", "b"], "label": [0, 2]} for s in data.SPLITS}, "run from 0 on"),
        ({s: {"text": ["a", "b"], "label": [0.5, 1.0]} for s in data.SPLITS}, "whole numbers"),
        ({s: {"x": [1, 2], "label": [0, 1]} for s in data.SPLITS}, "columns of text"),
        (
            {s: {"a": ["1"], "b": ["2"], "c": ["3"], "label": [0]} for s in data.SPLITS},
            "columns of text",
        ),
    ],
)
def test_unfit_data_sets_are_refused_by_name(tmp_path, splits, words):
    folder = write_parquet(tmp_path / "set", splits)
    with pytest.raises(ValueError, match=words):
        data.load(folder)


@pytest.mark.parametrize(
    ("load", "variable"),
    [
        (lambda name: data.load(name), "COURSE_DATASET"),
        (lambda name: models.load_model(name), "COURSE_MODEL"),
        (lambda name: models.load_tokenizer(name), "COURSE_MODEL"),
    ],
    ids=["data", "model", "tokenizer"],
)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("someone/does-not-exist", "the hub was not reached or does not have it"),
        ("./no/such/folder", "there is no folder './no/such/folder'"),
        ("empty", "does not hold"),
    ],
)
def test_what_cannot_be_loaded_is_one_sentence_with_a_way_on(
    load, variable, name, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(data.NotLoadedError) as error:
        load(name)
    text = str(error.value)
    assert words in text
    assert f"unset {variable}" in text
    assert "\n" not in text


def test_a_configuration_without_a_data_set_is_refused(monkeypatch):
    monkeypatch.setenv("COURSE_DATASET_CONFIG", "mrpc")
    with pytest.raises(ValueError, match="COURSE_DATASET is not set"):
        data.load()


def test_small_model_is_small_seeded_and_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    one, same, other = (models.load_model(seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert sum(p.numel() for p in one.parameters()) < 2_000_000
    assert one.config.id2label == {0: "negative", 1: "positive"}

    def weights(model):
        return torch.cat([p.flatten() for p in model.parameters()])

    assert torch.equal(weights(one), weights(same))
    assert not torch.equal(weights(one), weights(other))


def test_a_saved_half_precision_model_is_loaded_in_fp32(tmp_path, monkeypatch):
    config = BertConfig(
        vocab_size=1000, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2,
    )  # fmt: skip
    saved = BertForSequenceClassification(config).to(torch.bfloat16)
    saved.save_pretrained(tmp_path / "bert")
    models.load_tokenizer().save_pretrained(tmp_path / "bert")
    monkeypatch.setenv("COURSE_MODEL", str(tmp_path / "bert"))
    model, tokenizer = models.load_model(num_labels=2), models.load_tokenizer()
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert torch.equal(model.classifier.weight, saved.classifier.weight.float())
    assert tokenizer("The lid is sturdy.") == models.load_tokenizer(str(data.TOKENIZER))(
        "The lid is sturdy."
    )
