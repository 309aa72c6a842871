"""The checks of lesson 04: solution, blank, a second right answer and plausible wrong ones."""

import pytest
import torch
from accelerate import Accelerator

from tests.exercises import assert_verdict, blank, solution
from utils.checks import lesson_04 as checks
from utils.checks.core import NOT_ATTEMPTED, RIGHT, WRONG

LESSON = "04_adamw_accelerator"
GIVEN = {"torch": torch}


def zero_first(model, loader, optimizer, lr_scheduler, accelerator):
    losses = []
    for batch in loader:
        optimizer.zero_grad()
        outputs = model(**batch)
        accelerator.backward(outputs.loss)
        optimizer.step()
        lr_scheduler.step()
        losses.append(outputs.loss.detach())
    return losses


@torch.no_grad()
def by_concatenation(model, loader):
    model.train(False)
    hits = [model(**batch).logits.argmax(1).eq(batch["labels"]) for batch in loader]
    return torch.cat(hits).float().mean()


def by_sums(model, batches):
    model.zero_grad()
    for batch in batches:
        (model(**batch).loss * len(batch["labels"])).backward()
    total = sum(len(batch["labels"]) for batch in batches)
    for parameter in model.parameters():
        parameter.grad /= total


SECOND_ANSWERS = {
    "train_epoch": zero_first,
    "accuracy_over": by_concatenation,
    "accumulate_gradients": by_sums,
    "wrong_lines": {11, 8, 10},
}


@pytest.mark.parametrize("name", SECOND_ANSWERS)
def test_solution_blank_and_a_second_right_answer(name):
    check = getattr(checks, name)
    assert_verdict(check, solution(LESSON, name, **GIVEN), RIGHT)
    assert_verdict(check, blank(LESSON, name, **GIVEN), NOT_ATTEMPTED)
    assert_verdict(check, SECOND_ANSWERS[name], RIGHT)


def loop(order, after="", result=lambda losses: losses, item=True):
    """Return a loop that does b(ackward), o(ptimizer), s(chedule), z(ero) in the given order."""

    def answer(model, loader, optimizer, lr_scheduler, accelerator):
        losses = []
        for batch in loader:
            loss = model(**batch).loss
            for letter in order:
                if letter == "b":
                    accelerator.backward(loss)
                elif letter == "B":
                    loss.backward()
                else:
                    act(letter, optimizer, lr_scheduler)
            losses.append(loss.item() if item else loss)
        for letter in after:
            act(letter, optimizer, lr_scheduler)
        return result(losses)

    def act(letter, optimizer, lr_scheduler):
        if letter == "o":
            optimizer.step()
        elif letter == "s":
            lr_scheduler.step()
        else:
            optimizer.zero_grad()

    return answer


def mean_of_means(model, loader):
    model.eval()
    with torch.no_grad():
        each = [(model(**b).logits.argmax(-1) == b["labels"]).float().mean() for b in loader]
    return (sum(each) / len(each)).item()


def with_dropout(model, loader):
    with torch.no_grad():
        hits = [(model(**b).logits.argmax(-1) == b["labels"]) for b in loader]
    return torch.cat(hits).float().mean().item()


def with_graph(model, loader):
    model.eval()
    return torch.cat([model(**b).logits.argmax(1).eq(b["labels"]) for b in loader]).float().mean()


def first_batch(model, loader):
    model.eval()
    for batch in loader:
        with torch.no_grad():
            hits = model(**batch).logits.argmax(-1) == batch["labels"]
        return hits.float().mean().item()


def weighted(weight, zero=True):
    def answer(model, batches):
        if zero:
            model.zero_grad()
        total = sum(len(b["labels"]) for b in batches)
        for batch in batches:
            size = len(batch["labels"])
            (model(**batch).loss * weight(size, total, len(batches))).backward()

    return answer


def zeroes_each_time(model, batches):
    total = sum(len(b["labels"]) for b in batches)
    for batch in batches:
        model.zero_grad()
        (model(**batch).loss * len(batch["labels"]) / total).backward()


def takes_a_step(model, batches):
    by_sums(model, batches)
    torch.optim.SGD(model.parameters(), lr=0.1).step()


WRONG_ANSWERS = [
    ("train_epoch", loop("bos"), "never zeroed"),
    ("train_epoch", loop("bzos"), "the weights never move"),
    ("train_epoch", loop("boz"), "schedule never steps"),
    ("train_epoch", loop("boz", after="s"), "once an epoch"),
    ("train_epoch", loop("bsoz"), "before the optimizer"),
    ("train_epoch", loop("bsz"), "is optimizer.step() there"),
    ("train_epoch", loop("b", after="o"), "outside the loop"),
    ("train_epoch", loop("bosz", result=lambda losses: losses[-1]), "returned the last loss"),
    ("train_epoch", loop("bosz", result=lambda losses: losses[:1]), "return inside the loop"),
    ("train_epoch", loop("bosz", item=False), "append loss.item()"),
    ("train_epoch", loop("Bosz"), "accelerator.backward was never called"),
    ("accuracy_over", mean_of_means, "averaged the accuracies"),
    ("accuracy_over", with_dropout, "dropout is still on"),
    ("accuracy_over", with_graph, "the graph is recorded"),
    ("accuracy_over", first_batch, "first batch"),
    ("accuracy_over", lambda m, b: 100 * by_concatenation(m, b), "Case: two batches"),
    ("accuracy_over", lambda m, b: 1 - by_concatenation(m, b), "share of errors"),
    ("accumulate_gradients", weighted(lambda size, total, count: 1), "needs its share"),
    ("accumulate_gradients", weighted(lambda size, total, count: 1 / count), "all have one size"),
    ("accumulate_gradients", weighted(lambda size, total, count: size), "gradient of the sum"),
    ("accumulate_gradients", weighted(lambda size, total, count: 1 / total), "multiply it by"),
    (
        "accumulate_gradients",
        weighted(lambda size, total, count: size / total, zero=False),
        "gradients from before",
    ),
    ("accumulate_gradients", zeroes_each_time, "once, before the loop"),
    ("accumulate_gradients", takes_a_step, "the weights have changed"),
    ("accumulate_gradients", lambda m, b: [m(**x) for x in b], "is backward called"),
    ("wrong_lines", [8, 10], "2 of the three are found"),
    ("wrong_lines", [8, 9, 11], "line 9 is right in itself"),
    ("wrong_lines", [1, 2, 3], "0 of yours are wrong lines"),
    ("wrong_lines", ["8", "10", "11"], "whole numbers"),
    ("wrong_lines", 8, "A list of three"),
]


@pytest.mark.parametrize(
    ("name", "answer", "hint"),
    WRONG_ANSWERS,
    ids=[f"{name}-{hint[:20]}" for name, _, hint in WRONG_ANSWERS],
)
def test_wrong_answer_is_rejected_with_its_hint(name, answer, hint):
    assert_verdict(getattr(checks, name), answer, WRONG, hint)


def test_a_check_leaves_the_learner_s_accelerator_alone():
    accelerator = Accelerator(gradient_accumulation_steps=4)
    assert_verdict(checks.train_epoch, zero_first, RIGHT)
    assert accelerator.gradient_accumulation_steps == 4
