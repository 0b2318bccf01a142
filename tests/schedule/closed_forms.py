"""Kinds of schedules compared with formulas: for P stages and M micro-batches, makespan, span and peak.

    closed_forms.py          some P and M
    closed_forms.py --all    P from 2 to 8, M from 2 to 32

timeline.py also checks every timeline from its blocks.  With T = F + B + W:

    gpipe          Huang et al. 2019: M T + (P-1) T, all M held
    1f1b           Narayanan et al. 2021a: the same time, P - d held by device d
    pipedream      Narayanan et al. 2019: the same of one step, and no gap on a device from its first backward to its last
                   forward, after which it only finishes resident micro-batches; so K steps in one take M (K-1) T more
    interleaved:V  Narayanan et al. 2021b: M T + (P-1) T / V, M a multiple of P
    chimera        Li and Hoefler 2021, eq. 1 with units in a row: M F + (M+P-2) (B+W), P held, M a multiple of P
    zb-h1          Qi et al. 2023, table 2: idle (P-1)(F+B-W), P held; with fewer than P micro-batches W (P-M) more
    zb-h2          the same table: idle (P-1)(F+B-2W) between first and last block, 2P-1 held, from M = 2P-1 on; the
                   last device begins (P-1) F late, and ends last
    zb-v           Qi et al. 2024: no idle time between first and last block if F = B = W, P held, from M = 2P-1 on;
                   other times: (P-1) max(F, B) / 2 more than M T
    dualpipe       devices in the middle begin (P/2-1) F late, and B waits for B as F does: M T + (P/2-1) max(F, B), P
                   held, for M = P and from M = 2P on
    interlaced     all devices alternate together: M+P-1 rounds of forwards, as many of backwards, and four embeddings
                   for each micro-batch: M (4E) + (M+P-1) T, min(M, 2P-1) held
    3f1b           nnScaler, table 7: M (3F + B + W) + (P-1)(F + B + W), the bound, from M = 2P on, if the first two
                   passes are through in time, P F <= 2F + B + W; P held
    terapipe:N     Li et al. 2021, all pieces and P-1 times one more: (M N + P-1) T / N; N + P - d - 1 pieces held by device
                   d, as a micro-batch goes back from its last piece on (Sun et al. 2024)
"""

import sys

from timeline import ask, check, close

TIMES = [(1, 1, 1), (1, 2, 1), (2, 2, 1)]


def expected(kind, p, m, times, embed):
    """Returns makespan, span and the largest number held; None without a formula."""
    f, b, w = times
    t = f + b + w
    ideal, even = m * t, p % 2 == 0 and m % 2 == 0
    if kind == "gpipe":
        return ideal + (p - 1) * t, ideal + (p - 1) * t, [m] * p
    if kind in ("1f1b", "pipedream"):
        return ideal + (p - 1) * t, ideal + (p - 1) * t, [min(m, p - d) for d in range(p)]
    if kind == "interleaved:2" and m % p == 0:
        held = [min(2 * m, 2 * (p - d - 1) + p + 1) / 2 for d in range(p)]
        return ideal + (p - 1) * t / 2, ideal + (p - 1) * t / 2, held
    if kind == "chimera" and even and m % p == 0:
        return m * f + (m + p - 2) * (b + w), None, p
    if kind == "zb-h1":
        late = (p - 1) * (f + b - w) + max(0, p - m) * w
        return ideal + late, ideal + late, min(p, m)
    if kind == "zb-h2" and m >= 2 * p - 1:
        return ideal + (p - 1) * f, ideal + (p - 1) * max(0, f + b - 2 * w), 2 * p - 1
    if kind == "zb-v" and m >= 2 * p - 1:
        return ideal + (p - 1) * max(f, b) / 2, ideal if f == b == w else None, p
    if kind == "dualpipe" and even and (m == p or m >= 2 * p):
        return ideal + (p // 2 - 1) * max(f, b), None, p
    if kind == "interlaced":
        time = m * (4 * embed + t) + (p - 1) * t
        return time, time, min(m, 2 * p - 1)
    if kind == "3f1b" and m >= 2 * p and p * f <= 2 * f + b + w:
        return m * (2 * f + t) + (p - 1) * t, None, p
    if kind.startswith("terapipe:"):
        n = int(kind.split(":")[1])
        time = (m * n + p - 1) * t / n
        return time, time, [min(m * n, n + p - d - 1) / n for d in range(p)]
    return None, None, None


def idle_when_full(x, p):
    """Returns the longest idle time of a device between its first backward and its last forward."""
    idle = 0
    for device in range(p):
        ops = [op for op in x["ops"] if op["device"] == device]
        first = min(op["start"] for op in ops if op["kind"] == "B")
        last = max(op["end"] for op in ops if op["kind"] == "F")
        busy = sum(op["end"] - op["start"] for op in ops if op["start"] >= first and op["end"] <= last)
        idle = max(idle, last - first - busy)
    return idle


def try_one(kind, p, m, times, embed):
    x = ask(kind, p, m, times, embed=embed)
    check(x, p, m, times, embed=embed)
    makespan, span, held = expected(kind, p, m, times, embed)
    bad = []
    if makespan is not None and not close(makespan, x["makespan"]):
        bad.append(f"makespan {x['makespan']}, not {makespan}")
    if span is not None and not close(span, x["span"]):
        bad.append(f"span {x['span']}, not {span}")
    if isinstance(held, list) and not all(close(h, y) for h, y in zip(held, x["peak"])):
        bad.append(f"peak {x['peak']}, not {held}")
    if isinstance(held, (int, float)) and not close(held, max(x["peak"])):
        bad.append(f"peak {x['peak']}, not {held}")
    if kind == "pipedream" and idle_when_full(x, p) > 1e-6:
        bad.append(f"{idle_when_full(x, p)} idle while it is full")
    for text in bad:
        print(f"{kind}, P={p}, M={m}, times {times}: {text}")
    return bool(bad), makespan is not None


KINDS = ["gpipe", "1f1b", "pipedream", "interleaved:2", "interleaved:3", "chimera", "zb-h1", "zb-h2", "zb-v", "dualpipe",
         "interlaced", "3f1b", "terapipe:2", "terapipe:4"]
# P = 4, M = 8, F = B = W = 1.
EXAMPLES = {"gpipe": (33, 33), "1f1b": (33, 33), "pipedream": (33, 33), "interleaved:2": (28.5, 28.5), "chimera": (28, 28),
            "zb-h1": (27, 27), "zb-h2": (27, 24), "zb-v": (25.5, 24), "dualpipe": (25, 24), "terapipe:4": (26.25, 26.25)}


def main():
    everything = "--all" in sys.argv
    n = wrong = formulas = 0
    for p in range(2, 9):
        some = sorted({2, 3, p, 2 * p - 1, 2 * p, 32}) if p in (2, 3, 4, 8) else [p, 2 * p]
        for m in range(2, 33) if everything else some:
            for times in TIMES if everything or p < 8 else TIMES[:1]:
                for kind in KINDS:
                    bad, has = try_one(kind, p, m, times, 1 if kind == "interlaced" else 0)
                    n, wrong, formulas = n + 1, wrong + bad, formulas + has
    for kind, (makespan, span) in EXAMPLES.items():
        x = ask(kind, 4, 8)
        assert (x["makespan"], x["span"]) == (makespan, span), (kind, x["makespan"], x["span"])
    # Chimera uses additional memory on request: with 5 it reaches the shortest makespan of its shape.
    x = ask("chimera", 4, 8, memory=5)
    assert x["makespan"] == 27 and max(x["peak"]) == 5 and x["optimal"]
    # In a full interlaced pipeline each further micro-batch costs its own work: f 1, b 3, E 1 make 8.
    more = [ask("interlaced", 4, m, (1, 3, 0), embed=1)["makespan"] for m in (8, 9)]
    assert more[1] - more[0] == 8, more
    print(f"{n} schedules, {formulas} of them beside a formula, {wrong} wrong")
    sys.exit(bool(wrong))


main()
