"""Schedule searches compared with the named kinds, and small ones with exhaustive enumeration.

    search.py               some at random
    search.py 0 1000        cases 0 to 999, and how often the search found a shorter schedule
    search.py --exact 0 50  orders of two devices, compared with all orders
    search.py --pieces 0 50 micro-batches in pieces, under constraints without an order of pieces

With random times, send times and memory limits, no kind that fits is shorter than the search's schedule, which fits
as well.  Every timeline is checked from its blocks (timeline.py).
"""

import itertools
import random
import sys
import tempfile

from timeline import ask, check

KINDS = ["gpipe", "1f1b", "interleaved:2", "interleaved:3", "interleaved:4", "chimera", "zb-h1", "zb-h2", "zb-v",
         "dualpipe"]


def random_case(seed):
    r = random.Random(seed)
    p, m = r.randint(2, 6), r.randint(2, 16)
    if r.random() < 0.3:
        times = tuple(r.randint(1, 3) for _ in range(3))
    else:
        times = round(r.uniform(0.5, 2), 2), round(r.uniform(0.5, 3), 2), round(r.choice([0, r.uniform(0.2, 2)]), 2)
    comm = r.choice([0, 0, round(r.uniform(0, 1), 2)])
    memory = r.choice([None, r.randint(1, p), r.randint(1, 2 * p), round(r.uniform(1, p + 1), 2)])
    return p, m, times, comm, memory


def against_kinds(seed):
    """Returns the relative gain over the best kind; None if no kind fits."""
    p, m, times, comm, memory = random_case(seed)
    best = None
    for kind in KINDS:
        x = ask(kind, p, m, times, comm, memory)
        if x is None:
            continue
        check(x, p, m, times, comm)
        if memory is not None:
            assert max(x["peak"]) <= memory + 1e-6, (seed, kind)
        if best is None or x["makespan"] < best:
            best = x["makespan"]
    x = ask("search", p, m, times, comm, memory)
    if x is None:
        assert memory is not None and memory < 1 and best is None, f"case {seed}: nothing was found"
        return None
    check(x, p, m, times, comm)
    assert memory is None or max(x["peak"]) <= memory + 1e-6, f"case {seed}: {x['peak']} in {memory}"
    assert best is None or x["makespan"] <= best * (1 + 1e-9), f"case {seed}: {x['makespan']}, a kind has {best}"
    return None if best is None else 1 - x["makespan"] / best


def orders_of(blocks, waits, limit):
    """Yields all orders of a device's blocks that respect their dependencies on it and the memory limit."""
    def go(done, held):
        if len(done) == len(blocks):
            yield tuple(done)
            return
        for b in blocks:
            if b in done or any(a not in done for a in waits[b] if a in blocks):
                continue
            more = held + (b[0] == "F") - (b[0] == ("W" if any(x[0] == "W" for x in blocks) else "B"))
            if more <= limit:
                yield from go(done + [b], more)
    yield from go([], 0)


def run(orders, waits, time, comm):
    """Returns the end of the last block, or infinity for a deadlock."""
    end, at, free = {}, [0, 0], [0.0, 0.0]
    while True:
        moved = False
        for d in (0, 1):
            while at[d] < len(orders[d]):
                b = orders[d][at[d]]
                if any(a not in end for a in waits[b]):
                    break
                start = max([free[d]] + [end[a] + (comm if a[1] != b[1] else 0) for a in waits[b]])
                end[b] = free[d] = start + time[b[0]]
                at[d] += 1
                moved = True
        if not moved:
            return max(free) if len(end) == sum(map(len, orders)) else float("inf")


def exact(seed):
    """Checks two stages and two or three micro-batches: the search finds the shortest of all pairs of orders."""
    r = random.Random(seed)
    split = r.random() < 0.5
    m = 2 if split else 3
    times = tuple(r.choice([0.5, 1, 1.5, 2, 3]) for _ in range(3))
    comm, memory = r.choice([0, 0.5, 1]), r.choice([1, 2, 3])
    time = {"F": times[0], "B": times[1] if split else times[1] + times[2], "W": times[2]}
    waits, device = {}, [[], []]
    for mb in range(m):
        for i in (0, 1):
            waits["F", i, mb] = [("F", 0, mb)] if i else []
            waits["B", i, mb] = [("F", i, mb)] + ([] if i else [("B", 1, mb)])
            if split:
                waits["W", i, mb] = [("B", i, mb)]
            device[i] += [(k, i, mb) for k in ("FBW" if split else "FB")]
    pairs = itertools.product(*[list(orders_of(d, waits, memory)) for d in device])
    best = min(run(pair, waits, time, comm) for pair in pairs)
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as f:
        f.write(f"split = {str(split).lower()}\n")
        f.flush()
        x = ask("search", 2, m, times, comm, memory, constraints=f.name)
    check(x, 2, m, times, comm)
    assert abs(x["makespan"] - best) < 1e-9 and x["optimal"], f"case {seed}: {x['makespan']}, there is {best}"


def of_pieces(seed):
    """Checks that every stage runs its pieces in order, and that a limit of one whole micro-batch is feasible."""
    r = random.Random(seed)
    p, m, pieces, chunks = r.randint(1, 4), r.randint(1, 4), r.randint(2, 4), r.randint(1, 2)
    times = tuple(r.choice([0.5, 1, 1.5, 2, 3]) for _ in range(3))
    comm, memory = r.choice([0, 0.5, 1]), r.choice([None, 0.9, 1, round(r.uniform(1, 3), 2)])
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as f:
        f.write(f"pieces = {pieces}\nstages = {chunks} * devices\nsplit = {r.choice(['true', 'false'])}\n")
        f.flush()
        x = ask("search", p, m, times, comm, memory, constraints=f.name)
    if x is None:
        assert memory is not None and memory < 1, f"case {seed}: nothing was found in {memory}"
        return
    check(x, p, m, times, comm)
    assert memory is None or 1 <= memory and max(x["peak"]) <= memory + 1e-6, f"case {seed}: {x['peak']} in {memory}"


def main():
    words = [w for w in sys.argv[1:] if w not in ("--exact", "--pieces")]
    lo, hi = (int(words[0]), int(words[1])) if words else (0, 15)
    if "--pieces" in sys.argv or not words:
        for seed in range(lo, hi):
            of_pieces(seed)
        print(f"{hi - lo} in pieces keep the order of these")
    if "--exact" in sys.argv or not words:
        for seed in range(lo, hi):
            exact(seed)
        print(f"{hi - lo} of two devices are as short as can be")
    if "--exact" not in sys.argv and "--pieces" not in sys.argv:
        shorter = [against_kinds(seed) for seed in range(lo, hi)]
        known = [x for x in shorter if x is not None]
        better = [x for x in known if x > 1e-9]
        print(f"{hi - lo} searches; {len(known)} where a kind fits, none of them shorter; in {len(better)} the search is, "
              f"by {100 * sum(better) / max(1, len(better)):.1f} % and up to {100 * max(better, default=0):.1f} %")


main()
