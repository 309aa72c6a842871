"""The checks of lesson 09: solution, blank, a second right answer and plausible wrong ones."""

import math

import pytest
import torch

from tests.exercises import assert_verdict, blank, solution
from utils.checks import lesson_09 as checks
from utils.checks.core import NOT_ATTEMPTED, RIGHT, WRONG

LESSON = "09_sharded_states"
GIVEN = {"torch": torch}


def by_heap(sizes, world_size):
    import heapq

    ranks, owners = [(0, rank) for rank in range(world_size)], {}
    for size, place in sorted((-size, place) for place, size in enumerate(sizes)):
        held, rank = heapq.heappop(ranks)
        owners[place] = rank
        heapq.heappush(ranks, (held - size, rank))
    return tuple(owners[place] for place in range(len(sizes)))


def by_chunks(rows, world_size, rank):
    chunks = torch.arange(rows).chunk(world_size)
    return len(chunks[rank]) if rank < len(chunks) else 0


def one_exchange(shard, all_reduce):
    squares = shard * shard
    ones = torch.ones(len(shard), 1)
    total = all_reduce(torch.cat([squares, ones], dim=1).sum(dim=0))
    return [squares.mean(dim=1), total[:-1] / total[-1]]


def by_counting(plan, device, how):
    for n in range(1, 1000):
        parts = {"zero": (1, 1, n), "fsdp": (n, n, n)}[how]
        if sum(v / part for v, part in zip(plan.values(), parts, strict=True)) <= device:
            return n
    return None


SECOND_ANSWERS = {
    "owners_of": by_heap,
    "rows_on_rank": by_chunks,
    "sharded_factors": one_exchange,
    "fewest_devices": by_counting,
}


@pytest.mark.parametrize("name", SECOND_ANSWERS)
def test_solution_blank_and_a_second_right_answer(name):
    check = getattr(checks, name)
    assert_verdict(check, solution(LESSON, name, **GIVEN), RIGHT)
    assert_verdict(check, blank(LESSON, name, **GIVEN), NOT_ATTEMPTED)
    assert_verdict(check, SECOND_ANSWERS[name], RIGHT)


def dealt(sizes, world_size, order, pick=min):
    held, owners = [0] * world_size, [0] * len(sizes)
    for place in order(range(len(sizes))):
        rank = pick(range(world_size), key=lambda r: (held[r], r))
        owners[place] = rank
        held[rank] += sizes[place]
    return owners


def factors(shard, column_means):
    squares = shard**2
    return squares.mean(1), column_means(squares)


def skips_empty_ranks(shard, all_reduce):
    if len(shard) == 0:
        return torch.zeros(0), torch.zeros(3)
    return one_exchange(shard, all_reduce)


def adds_up_rows(shard, all_reduce):
    row_means, column_means = one_exchange(shard, all_reduce)
    return all_reduce(row_means), column_means


def mixes_shapes(shard, all_reduce):
    own = all_reduce(torch.ones(len(shard) + int(shard[0, 0] > 0)))
    return own, own


def forgets_to_return(shard, all_reduce):
    one_exchange(shard, all_reduce)


def fewest(plan, device, how, zero, fsdp, give_up=None):
    for n in range(1, 1000):
        if (
            sum(
                v / part
                for v, part in zip(
                    plan.values(), zero(n) if how == "zero" else fsdp(n), strict=True
                )
            )
            <= device
        ):
            return n
    return give_up


def floored(plan, device, how):
    kept = plan["weights"] + plan["gradients"] if how == "zero" else 0
    return max(1, (sum(plan.values()) - kept) // (device - kept)) if device > kept else None


def all_n(n):
    return (n, n, n)


def stage_1(n):
    return (1, 1, n)


WRONG_ANSWERS = [
    ("owners_of", lambda s, w: dealt(s, w, list), "given order"),
    ("owners_of", lambda s, w: dealt(s, w, lambda p: sorted(p, key=lambda i: s[i])), "smallest"),
    ("owners_of", lambda s, w: [i % w for i in range(len(s))], "take turns; sort by size"),
    (
        "owners_of",
        lambda s, w: [
            sorted(range(len(s)), key=lambda i: -s[i]).index(place) % w for place in range(len(s))
        ],
        "fewest elements so far",
    ),
    ("owners_of", lambda s, w: [i * w // len(s) for i in range(len(s))], "equal pieces"),
    ("owners_of", lambda s, w: sorted(by_heap(s, w)), "owners[i] is the rank"),
    (
        "owners_of",
        lambda s, w: [by_heap(s, w)[i] for i in sorted(range(len(s)), key=lambda i: -s[i])],
        "place of its tensor",
    ),
    ("owners_of", lambda s, w: [1 + owner for owner in by_heap(s, w)], "count from 0"),
    (
        "owners_of",
        lambda s, w: [w - 1 - owner for owner in by_heap(s, w)],
        "the lowest is taken",
    ),
    ("owners_of", lambda s, w: 0, "values are expected"),
    ("rows_on_rank", lambda n, w, r: n // w, "round up"),
    ("rows_on_rank", lambda n, w, r: n / w, "half a row"),
    ("rows_on_rank", lambda n, w, r: n // w + (1 if r < n % w else 0), "spreads the remainder"),
    ("rows_on_rank", lambda n, w, r: n // w + n % w * (r == w - 1), "remainder to the last rank"),
    ("rows_on_rank", lambda n, w, r: math.ceil(n / w), "the last ranks get less"),
    (
        "rows_on_rank",
        lambda n, w, r: min(math.ceil(n / w), n - r * math.ceil(n / w)),
        "fewer than 0",
    ),
    (
        "rows_on_rank",
        lambda n, w, r: math.ceil(n / w) if r < w - 1 else n - r * math.ceil(n / w),
        "more than one rank",
    ),
    (
        "sharded_factors",
        lambda s, r: factors(s, lambda q: r(q.mean(0)) / r(torch.ones(1))),
        "mean of means",
    ),
    (
        "sharded_factors",
        lambda s, r: factors(s, lambda q: r(q.sum(0) / max(len(q), 1)) / r(torch.ones(1))),
        "mean of means",
    ),
    ("sharded_factors", lambda s, r: factors(s, lambda q: q.mean(0)), "this rank's rows only"),
    ("sharded_factors", lambda s, r: factors(s, lambda q: r(q.sum(0))), "column sums"),
    (
        "sharded_factors",
        lambda s, r: factors(s, lambda q: r(q.sum(0)) / len(q)),
        "all ranks together",
    ),
    ("sharded_factors", lambda s, r: factors(s, lambda q: r(q.mean(0))), "sums of means"),
    (
        "sharded_factors",
        lambda s, r: (s.mean(1), r(s.sum(0)) / r(torch.tensor(float(len(s))))),
        "square the gradient",
    ),
    ("sharded_factors", lambda s, r: one_exchange(s, r)[::-1], "row means first"),
    (
        "sharded_factors",
        lambda s, r: factors(s, lambda q: r(q.sum(0)) / r(len(q))),
        "wrap a number",
    ),
    ("sharded_factors", skips_empty_ranks, "every rank has to call"),
    ("sharded_factors", adds_up_rows, "Row means need nothing"),
    ("sharded_factors", mixes_shapes, "same shape"),
    ("sharded_factors", lambda s, r: 1 / 0, "ZeroDivisionError"),
    ("sharded_factors", forgets_to_return, "return statement"),
    ("sharded_factors", 3, "function is expected"),
    ("fewest_devices", floored, "round up"),
    ("fewest_devices", lambda p, d, h: fewest(p, d, h, all_n, all_n), "the state only"),
    ("fewest_devices", lambda p, d, h: fewest(p, d, h, stage_1, stage_1), "FSDP shards weights"),
    (
        "fewest_devices",
        lambda p, d, h: fewest(p, d, h, lambda n: (1, n, n), all_n),
        "leaves all gradients",
    ),
    ("fewest_devices", lambda p, d, h: fewest(p, d, h, stage_1, all_n, 0), "answer is None"),
    (
        "fewest_devices",
        lambda p, d, h: max(1, math.ceil(p["state"] / d)),
        "need room as well",
    ),
    ("fewest_devices", 3, "function is expected"),
]


@pytest.mark.parametrize(
    ("name", "answer", "hint"),
    WRONG_ANSWERS,
    ids=[f"{name}-{hint[:20]}-{place}" for place, (name, _, hint) in enumerate(WRONG_ANSWERS)],
)
def test_wrong_answer_is_rejected_with_its_hint(name, answer, hint):
    assert_verdict(getattr(checks, name), answer, WRONG, hint)
