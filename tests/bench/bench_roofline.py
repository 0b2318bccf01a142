#!/usr/bin/env python3
"""How near the longest operations come to the machine's limits:  bench_roofline.py [MODEL ...]

    --threads N       threads (2)
    --rounds N        processes of each executable (3): that with the shortest step is shown
    --steps N         steps of a process (12)
    --dtypes A,B      f32, bf16 (f32)
    --rows N          operations of each model (10)
    --nnaot FILE      the compiler (build/bin/nnaot)
    --flags FLAGS     more flags of it
    --results FILE    a line of JSON for each model and type: the tables of --timings

Trains the models of bench.py by nnaot alone, with --timings, and prints Markdown.  Needs what bench.py needs.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "samples"), str(HERE)]
from bench import ROOT, command_of, prepare  # noqa: E402
from timings_text import parse  # noqa: E402

BATCHES = 4


def measure(name, folder, dtype, a):
    command = [*command_of("nnaot", name, folder, dtype, a.steps, a), "--timings"]
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    runs = [parse(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout) for _ in range(a.rounds)]
    return min(runs, key=lambda run: float(run["step"]["ms"]))


def cells_of(row):
    peak = f"**{row['peak']} %** {row['limit']}" if row["peak"] != "-" else ""
    rates = ["" if row[key] == "-" else row[key] for key in ("flops", "bytes")]
    return [row["name"].replace("|", r"\|"), row["ms"], f"{row['share']} %", row["calls"], *rates, peak]


def show(title, got, rows):
    limits = ", ".join(f"{name} {rate} {unit} ({how})" for rate, unit, name, how in got["limits"])
    print(f"\n{title}; {limits}\n")
    print("| operation | ms a step | share | calls | GFLOP/s | GB/s | of peak |\n|---|---|---|---|---|---|---|")
    for row in [*got["ops"][:rows], got["step"]]:
        print(f"| {' | '.join(cells_of(row))} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    p.add_argument("models", nargs="*")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--dtypes", type=lambda s: s.split(","), default=["f32"])
    p.add_argument("--rows", type=int, default=10)
    p.add_argument("--nnaot", default=ROOT / "build/bin/nnaot")
    p.add_argument("--flags", default="")
    p.add_argument("--results", type=pathlib.Path)
    a = p.parse_args()
    a.batches, a.data, a.warmup = BATCHES, "random", 0
    from bench_models import MODELS
    unknown = set(a.models) - set(MODELS)
    if unknown:
        raise SystemExit(f"no model {', '.join(sorted(unknown))}: see bench.py --list")
    for name in a.models or MODELS:
        with tempfile.TemporaryDirectory(prefix="nnaot-bench-") as folder:
            folder = pathlib.Path(folder)
            prepare(name, folder, a)
            for dtype in a.dtypes:
                got = measure(name, folder, dtype, a)
                if a.results:
                    with a.results.open("a") as f:
                        f.write(json.dumps(dict(model=name, dtype=dtype, threads=a.threads, **got)) + "\n")
                show(f"{MODELS[name].title}, {dtype}, {a.threads} threads", got, a.rows)


if __name__ == "__main__":
    main()
