"""Checks of lesson 09: who owns what, rows of a rank, factors from shards, how many devices."""

import threading

import torch

from utils.checks.core import Case, Misconception, Wrong, check_function, exercise, require_attempt
from utils.memory import GIB, rows_of_rank, zero_owners


def _greedy(order=lambda sizes: sorted(range(len(sizes)), key=lambda i: -sizes[i]), last=False):
    """Return the assignment that deals tensors in another `order`, or to the last of equal ranks."""

    def answer(sizes, world_size):
        held, owners = [0] * world_size, [0] * len(sizes)
        for place in order(sizes):
            ranks = range(world_size)
            rank = min(reversed(ranks) if last else ranks, key=lambda r: held[r])
            owners[place] = rank
            held[rank] += sizes[place]
        return owners

    return answer


def _fewest_tensors(sizes, world_size):
    owners, order = [0] * len(sizes), sorted(range(len(sizes)), key=lambda i: -sizes[i])
    for turn, place in enumerate(order):
        owners[place] = turn % world_size
    return owners


@exercise("9.1")
def owners_of(answer) -> str:
    """Check `owners_of(sizes, world_size)`: the greedy assignment of whole tensors to ranks."""
    cases = [
        Case("sizes 4, 3, 2 and 1 on 2 ranks", ([4, 3, 2, 1], 2)),
        Case("sizes 1, 2, 3 and 4 on 2 ranks", ([1, 2, 3, 4], 2)),
        Case("one large tensor and four small ones on 2 ranks", ([10, 1, 100, 5, 2], 2)),
        Case("five equal tensors on 2 ranks", ([7, 7, 7, 7, 7], 2)),
        Case("three tensors on 4 ranks", ([5, 9, 5], 4)),
        Case("sizes 8, 7, 6, 5, 4 and 3 on 3 ranks", ([8, 7, 6, 5, 4, 3], 3)),
        Case("one rank", ([3, 1, 2], 1)),
    ]
    misconceptions = [
        Misconception(
            _greedy(order=lambda sizes: range(len(sizes))),
            "the tensors are dealt out in their given order; the largest comes first.",
        ),
        Misconception(
            _greedy(order=lambda sizes: sorted(range(len(sizes)), key=lambda i: sizes[i])),
            "you begin with the smallest; the largest comes first.",
        ),
        Misconception(
            _fewest_tensors,
            "the ranks take turns; give each tensor to the rank with the fewest elements so far.",
        ),
        Misconception(
            lambda sizes, world_size: [i % world_size for i in range(len(sizes))],
            "the ranks take turns; sort by size, and look at what each rank holds so far.",
        ),
        Misconception(
            lambda sizes, world_size: [i * world_size // len(sizes) for i in range(len(sizes))],
            "you cut the list into equal pieces; the tensors differ in size.",
        ),
        Misconception(_greedy(last=True), "of ranks that hold the same, the lowest is taken."),
        Misconception(
            lambda sizes, world_size: sorted(zero_owners(sizes, world_size)),
            "the owners belong in the order of `sizes`: owners[i] is the rank of tensor i.",
        ),
        Misconception(
            lambda sizes, world_size: [
                owner
                for _, owner in sorted(
                    zip(sizes, zero_owners(sizes, world_size), strict=True),
                    key=lambda pair: -pair[0],
                )
            ],
            "the owners stand in sorted order; put each back at the place of its tensor.",
        ),
        Misconception(
            lambda sizes, world_size: [o + 1 for o in zero_owners(sizes, world_size)],
            "ranks count from 0.",
        ),
    ]
    return check_function(answer, zero_owners, cases, misconceptions, hint_fits_every_case=True)


@exercise("9.2")
def rows_on_rank(answer) -> str:
    """Check `rows_on_rank(rows, world_size, rank)`: how FSDP2 splits the rows of a tensor."""
    cases = [
        Case(f"{rows} rows on {world} ranks, rank {rank}", (rows, world, rank))
        for rows, world, rank in [
            (8, 2, 0),
            (8, 2, 1),
            (5, 4, 0),
            (5, 4, 1),
            (5, 4, 2),
            (5, 4, 3),
            (2, 8, 1),
            (2, 8, 2),
            (2, 8, 7),
            (1000, 64, 0),
            (1000, 64, 62),
            (1000, 64, 63),
            (3, 1, 0),
        ]
    ]

    def each(rows, world):
        return -(-rows // world)

    misconceptions = [
        Misconception(
            lambda rows, world, rank: rows // world,
            "rounded down, some rows belong to nobody; round up.",
        ),
        Misconception(
            lambda rows, world, rank: rows / world,
            "half a row cannot be held; round up.",
        ),
        Misconception(
            lambda rows, world, rank: rows // world + (rank < rows % world),
            "that spreads the remainder evenly; FSDP2 gives the first ranks full shares, and the "
            "last ones get what is left.",
        ),
        Misconception(
            lambda rows, world, rank: rows // world + (rows % world if rank == world - 1 else 0),
            "you gave the remainder to the last rank; it is the last ranks that run short.",
        ),
        Misconception(
            lambda rows, world, rank: each(rows, world),
            "the last ranks get less: together they would hold more rows than there are.",
        ),
        Misconception(
            lambda rows, world, rank: min(each(rows, world), rows - rank * each(rows, world)),
            "a rank cannot hold fewer than 0 rows.",
        ),
        Misconception(
            lambda rows, world, rank: (
                each(rows, world) if rank < world - 1 else rows - rank * each(rows, world)
            ),
            "more than one rank can run short: 5 rows on 4 ranks are 2, 2, 1, 0.",
        ),
    ]
    return check_function(answer, rows_of_rank, cases, misconceptions, hint_fits_every_case=True)


class _Ranks:
    """Runs a function on several ranks at once, in threads that meet in `all_reduce`."""

    def __init__(self, world_size: int):
        self.barrier = threading.Barrier(world_size, timeout=5)
        self.given = [None] * world_size

    def all_reduce(self, rank: int):
        """Return the function that adds up what every rank passes to it."""

        def reduce(tensor):
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(f"all_reduce takes a tensor, got {type(tensor).__name__}")
            self.given[rank] = tensor
            self.barrier.wait()
            shapes = {tuple(t.shape) for t in self.given}
            total = sum(self.given) if len(shapes) == 1 else None
            self.barrier.wait()
            if total is None:
                raise ValueError(f"all_reduce got different shapes: {sorted(shapes)}")
            return total.clone()

        return reduce


def on_all_ranks(function, shards):
    """Return what `function(shard, all_reduce)` gives on each rank.

    Raises: what the function raised on the first rank where it failed; RuntimeError if the ranks
    do not call all_reduce equally often.
    """
    ranks, results, errors = _Ranks(len(shards)), [None] * len(shards), {}

    def work(rank):
        try:
            results[rank] = function(shards[rank], ranks.all_reduce(rank))
        except Exception as error:
            errors[rank] = error
        if rank in errors:
            ranks.barrier.abort()  # the others need not wait

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(shards))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own = [e for _, e in sorted(errors.items()) if not isinstance(e, threading.BrokenBarrierError)]
    if own:
        raise own[0]
    if errors:
        raise RuntimeError("the ranks did not call all_reduce equally often: some wait forever")
    if all(result is None for result in results):
        return None
    return results


def _factors(columns):
    def answer(shard, all_reduce):
        squares = shard**2
        return squares.mean(1), columns(squares, all_reduce)

    return answer


def _count(tensor, all_reduce):
    return all_reduce(torch.tensor(float(len(tensor))))


_reference = _factors(lambda s, reduce: reduce(s.sum(0)) / _count(s, reduce))


def _mean_of_means(squares, all_reduce):
    mean = squares.mean(0) if len(squares) else squares.sum(0)
    return all_reduce(mean) / all_reduce(torch.ones(()))


@exercise("9.3")
def sharded_factors(answer) -> str:
    """Check `sharded_factors(shard, all_reduce)`: Adafactor's statistics when rows are sharded."""
    generator = torch.Generator().manual_seed(9)

    def case(label, rows, columns):
        return Case(label, tuple(torch.randn(r, columns, generator=generator) for r in rows))

    cases = [
        case("2 ranks with 4 rows each", (4, 4), 3),
        case("4 ranks with 2, 2, 1 and 0 of 5 rows", (2, 2, 1, 0), 3),
        case("3 ranks with 5, 5 and 2 of 12 rows, 1 column", (5, 5, 2), 1),
        case("one rank", (3,), 4),
    ]
    misconceptions = [
        (
            _factors(_mean_of_means),
            "a mean of means: ranks with fewer rows count as much as full ones. Add up sums and "
            "numbers of rows, then divide.",
        ),
        (
            _factors(lambda s, reduce: reduce(s.mean(0)) / reduce(torch.ones(()))),
            "a mean of means, and a rank without rows makes it nan. Add up sums and numbers of "
            "rows, then divide.",
        ),
        (
            _factors(lambda s, reduce: s.mean(0)),
            "the column means cover this rank's rows only; all_reduce adds up over the ranks.",
        ),
        (
            _factors(lambda s, reduce: reduce(s.sum(0))),
            "these are column sums; divide by the number of rows of all ranks.",
        ),
        (
            _factors(lambda s, reduce: reduce(s.sum(0)) / len(s)),
            "you divide by this rank's rows; all ranks together hold more.",
        ),
        (
            _factors(lambda s, reduce: reduce(s.mean(0))),
            "these are sums of means; add up sums and numbers of rows, then divide.",
        ),
        (
            lambda shard, reduce: (
                shard.mean(1),
                reduce(shard.sum(0)) / _count(shard, reduce),
            ),
            "Adafactor averages squares: square the gradient first.",
        ),
        (
            lambda shard, reduce: (reduce((shard**2).mean(1)), _reference(shard, reduce)[1]),
            "these are sums over ranks. Row means need nothing from other ranks.",
        ),
        (
            lambda shard, reduce: _reference(shard, reduce)[::-1],
            "row means first, column means second.",
        ),
    ]
    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")

    def spread(function):
        return lambda *shards: on_all_ranks(function, shards)

    return check_function(
        spread(answer),
        spread(_reference),
        cases,
        [Misconception(spread(wrong), hint) for wrong, hint in misconceptions],
        tolerance=1e-5,
        error_hints={
            "takes a tensor": "wrap a number: `torch.tensor(float(len(shard)))`.",
            "different shapes": "every rank passes a tensor of the same shape: one sum a column. "
            "Row means need nothing from other ranks.",
            "equally often": "every rank has to call all_reduce, also one without rows.",
        },
    )


def _fewest(
    need=lambda plan, n, how: (
        plan["weights"] + plan["gradients"] + plan["state"] / n
        if how == "zero"
        else sum(plan.values()) / n
    ),
    impossible=None,
):
    def answer(plan, device, how):
        if how == "zero" and plan["weights"] + plan["gradients"] >= device:
            return impossible
        n = 1
        while need(plan, n, how) > device:
            n += 1
            if n > 10_000:
                return impossible
        return n

    return answer


@exercise("9.4")
def fewest_devices(answer) -> str:
    """Check `fewest_devices(plan, device, how)`: devices that are needed with ZeRO or with FSDP."""

    def plan(weights, gradients, state):
        return {
            "weights": int(weights * GIB),
            "gradients": int(gradients * GIB),
            "state": int(state * GIB),
        }

    cases = [
        Case("14 + 14 + 28 GiB on devices of 80 GiB, zero", (plan(14, 14, 28), 80 * GIB, "zero")),
        Case("14 + 14 + 28 GiB on devices of 40 GiB, zero", (plan(14, 14, 28), 40 * GIB, "zero")),
        Case("14 + 14 + 28 GiB on devices of 24 GiB, zero", (plan(14, 14, 28), 24 * GIB, "zero")),
        Case("14 + 14 + 28 GiB on devices of 24 GiB, fsdp", (plan(14, 14, 28), 24 * GIB, "fsdp")),
        Case("14 + 14 + 28 GiB on devices of 28 GiB, fsdp", (plan(14, 14, 28), 28 * GIB, "fsdp")),
        Case("26 + 26 + 104 GiB on devices of 56 GiB, zero", (plan(26, 26, 104), 56 * GIB, "zero")),
        Case("26 + 26 + 104 GiB on devices of 39 GiB, fsdp", (plan(26, 26, 104), 39 * GIB, "fsdp")),
        Case("100 + 50 + 1 GiB on devices of 80 GiB, zero", (plan(100, 50, 1), 80 * GIB, "zero")),
    ]

    def rounded_down(plan, device, how):
        room = device - (plan["weights"] + plan["gradients"] if how == "zero" else 0)
        shared = plan["state"] if how == "zero" else sum(plan.values())
        return max(1, shared // room) if room > 0 else None

    misconceptions = [
        Misconception(rounded_down, "rounded down, the last piece has no place; round up."),
        Misconception(
            _fewest(need=lambda plan, n, how: sum(plan.values()) / n),
            "ZeRO shards the state only: every device holds all weights and gradients.",
        ),
        Misconception(
            _fewest(need=lambda plan, n, how: plan["state"] / n),
            "weights and gradients need room as well.",
        ),
        Misconception(
            _fewest(
                need=lambda plan, n, how: plan["weights"] + plan["gradients"] + plan["state"] / n
            ),
            "FSDP shards weights and gradients, too.",
        ),
        Misconception(
            _fewest(
                need=lambda plan, n, how: (
                    plan["weights"] + (plan["gradients"] + plan["state"]) / n
                    if how == "zero"
                    else sum(plan.values()) / n
                )
            ),
            "ZeroRedundancyOptimizer leaves all gradients on every device.",
        ),
        Misconception(
            _fewest(impossible=0),
            "where no number of devices is enough, the answer is None.",
        ),
    ]

    require_attempt(answer)
    if not callable(answer):
        raise Wrong("A function is expected here.")

    def named(function):
        # None is an answer here; the check would take it for a missing return.
        def with_none(*args):
            got = function(*args)
            return "None" if got is None else got

        return with_none

    return check_function(
        named(answer),
        named(_fewest()),
        cases,
        [Misconception(named(m.wrong), m.hint) for m in misconceptions],
    )
