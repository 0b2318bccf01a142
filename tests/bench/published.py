#!/usr/bin/env python3
"""Published steps in 16 bits beside the predicted ones:  tests/bench/published.py [ROW …] [--list]

Rows are measurements of Megatron-LM, MegaScale's baseline, Llama 3, torchtitan and Mist's artifact, with their plans in nnaot's
words (published_rows.py). Clusters are clusters/published-*.lua: figures of vendors, NCCL's choice for collectives, shares of
peaks from other measurements, and one figure that is fitted, `half_efficiency`: the share of the 16-bit peak that products reach,
which differs by power limit and library.

    tests/bench/published.py sc21 titan               rows whose names begin so; all of them without
    tests/bench/published.py --results FILE           resumes: what FILE has is not computed again; a file is for one build
    tests/bench/published.py --check                  fails if a plan is refused, or the mean error of the rows that are not fitted
                                                      is 10 % or more

FITTED: the rows marked so, every second of each source (published_rows.FITTED), fix `half_efficiency` of their cluster, to two
decimals: their mean error, with its sign, is then nearest to 0. `other` rows fix nothing, and judge.

Dropouts are clips, so that layers are recomputed as a whole (paper_models.py), and devices have eight times the memory, as
nnaot's needs are not the systems'. Compute, comm and idle are means over ranks; the last column is the CPU seconds of planning.
Measurements in FP8 are listed apart: nnaot has no such steps. MLPerf has no rows: it publishes minutes to a quality, not steps,
and NVIDIA's results for GPT-3 are in FP8 (EE Times, 26 June 2023).
"""

import statistics
import sys
import tempfile
import textwrap

from papers_bench import Bench, Setting
from published_rows import CAUSES, FITTED, FP8, ROWS
from row_options import is_asked, row_parser

MEMORY, MEAN = 8, 0.1  # times that of the devices; the mean error that passes


def priced(bench, row):
    setting = Setting(row.model, row.size, row.rows, row.ranks, row.cluster, "bf16", row.more)
    return bench.price(setting, row.plan, row.micro_batches, MEMORY)


def show(bench, row):
    """Prints the row; returns the relative error, None if the plan is refused."""
    r = priced(bench, row)
    head = f"{row.name:28}{row.ranks:6}  {row.plan[:58]:58}{row.micro_batches:5}{row.seconds * 1e3:10.0f}"
    if "seconds" not in r:
        print(f"{head}  {r['why'][:100]}", flush=True)
        return None
    error = r["seconds"] / row.seconds - 1
    parts = "".join(f"{1e3 * s:9.0f}" for s in r["parts"])
    print(f"{head}{r['seconds'] * 1e3:10.0f}{error:+8.1%}  {'fitted' if row.name in FITTED else 'other':8}{parts}{r['took']:7.1f}",
          flush=True)
    return error


def show_means(errors):
    """Prints the mean errors; returns that of the rows that are not fitted."""
    means = {}
    for name, some in ("fitted", FITTED), ("other", set(errors) - FITTED):
        known = [e for n, e in errors.items() if n in some and e is not None]
        if known:
            means[name] = statistics.mean(map(abs, known))
            print(f"{name}: mean error {means[name]:.1%}, with its sign {statistics.mean(known):+.1%}, at most "
                  f"{max(map(abs, known)):.1%}, {len(known)} rows")
    return means.get("other", 0)


def show_fp8():
    print("\nin FP8, not predicted:")
    for name, source, words in FP8:
        print(f"    {name:64}{words:8} words/s of a device  {source}")


def main():
    o = row_parser(__doc__).parse_args()
    rows = [row for row in ROWS if is_asked(o, row.name)]
    if o.list:
        for row in rows:
            print(f"{row.name:28}{row.seconds:8.2f} s  {'fitted' if row.name in FITTED else 'other':8}{row.source}")
        return
    print(f"{'':28}{'ranks':>6}  {'plan':58}{'m':>5}{'ms':>10}{'predicted':>10}{'error':>8}  {'':8}{'compute':>9}{'comm':>9}"
          f"{'idle':>9}{'CPU':>7}")
    errors = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(o, folder)
        for row in rows:
            errors[row.name] = show(bench, row)
    mean = show_means(errors)
    for start, cause in CAUSES.items():
        if any(row.name.startswith(start) for row in rows):
            print(textwrap.fill(f"{start}: {cause}", 130, subsequent_indent="    "))
    if not o.names:
        show_fp8()
    if o.check and (None in errors.values() or mean >= MEAN):
        sys.exit(f"the mean error of other rows is {mean:.1%}, or a plan is refused")


if __name__ == "__main__":
    main()
