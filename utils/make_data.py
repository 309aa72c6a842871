"""Write the course's data set and tokenizer: `python -m utils.make_data`.

Everything is seeded, so that a second run writes the same files byte for byte.
"""

import csv
import io
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from utils.data import REVIEWS, TOKENIZER
from utils.grammar import write_reviews

SEED = 2018
SPLITS = {"train": 9000, "validation": 1000}
LABEL_NOISE = 0.04  # the share of labels that are flipped, in both splits
VOCABULARY = 1000
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def split_rows() -> dict[str, list[tuple[str, int]]]:
    """Return for each split its (sentence, label) rows; no sentence stands in two splits."""
    reviews = write_reviews(sum(SPLITS.values()), SEED)
    chance = random.Random(SEED + 1)
    rows = []
    for review in reviews:
        flipped = chance.random() < LABEL_NOISE
        rows.append((review.sentence, 1 - review.label if flipped else review.label))
    first = SPLITS["train"]
    return {"train": rows[:first], "validation": rows[first:]}


def as_csv(rows: Iterable[tuple[str, int]]) -> str:
    """Return `rows` as CSV text with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("sentence", "label"))
    writer.writerows(rows)
    return text.getvalue()


def _untrained(vocabulary: dict[str, int] | None = None) -> Tokenizer:
    model = models.WordPiece(vocabulary or {}, unk_token="[UNK]", max_input_chars_per_word=100)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def train_tokenizer(sentences: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a WordPiece tokenizer of `VOCABULARY` entries, trained on `sentences`.

    The trainer numbers letters in the order of a hash table, which differs from run to run. Handing
    it the sorted letters as special tokens fixes their numbers; the tokenizer is then built again
    from the vocabulary alone, so that letters are ordinary entries.
    """
    draft = _untrained()
    letters = sorted({letter for text in sentences for letter in text.lower() if letter != " "})
    fixed = [*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY, special_tokens=fixed, show_progress=False
    )
    draft.train_from_iterator(sentences, trainer)
    vocabulary = draft.get_vocab()

    tokenizer = _untrained(vocabulary)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "attention_mask"],
    )


def write_all(reviews: Path = REVIEWS, tokenizer: Path = TOKENIZER) -> None:
    """Write the two splits as CSV into `reviews` and the tokenizer into `tokenizer`."""
    splits = split_rows()
    reviews.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        (reviews / f"{name}.csv").write_text(as_csv(rows), encoding="utf-8", newline="\n")
    train_tokenizer([sentence for sentence, _ in splits["train"]]).save_pretrained(tokenizer)


if __name__ == "__main__":
    write_all()
    print(f"written: {REVIEWS} and {TOKENIZER}")
