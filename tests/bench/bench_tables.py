#!/usr/bin/env python3
"""Tables and pictures of bench.py's results:  bench_tables.py RESULTS.jsonl [--speed FILE.svg] [--losses FILE.svg] [--machine TEXT]

Prints Markdown: for each model and type nnaot's and PyTorch's milliseconds, ratios and memory, and geometric means.
--speed draws the ratio of the best PyTorch to nnaot as bars, --losses the losses of each step as curves.
"""

import argparse
import html
import json
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "samples"), str(HERE)]
from bench import INFERENCE, TORCH  # noqa: E402

LAST = 10  # steps, of which the mean loss is the final one
COLORS = {"f32": "#2f6fb5", "bf16": "#c2622d"}


def row_of(result, kind, dtype):
    return next((r for r in result["rows"] if (r["kind"], r["dtype"]) == (kind, dtype)), None)


def best_torch(result, dtype):
    rows = [r for r in result["rows"] if r["kind"] in TORCH and r["dtype"] == dtype]
    return min(rows, key=lambda r: r["ms"]) if rows else None


def leanest_torch(result, dtype):
    return min((r["mib"] for r in result["rows"] if r["kind"] in TORCH and r["dtype"] == dtype), default=None)


def ratios(results, dtype):
    """By model: the best PyTorch's time over nnaot's."""
    pairs = [(r["model"], row_of(r, "nnaot", dtype), best_torch(r, dtype)) for r in results]
    return {model: theirs["ms"] / ours["ms"] for model, ours, theirs in pairs if ours and theirs}


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def table(results, dtype):
    from bench_models import MODELS
    print(f"\n| {dtype} | nnaot, ms | eager | compile | compile, tuned | best PyTorch / nnaot | MiB: nnaot, leanest PyTorch |"
          " exec to first step, s: nnaot, eager | to its end | inference, ms |")
    print(f"|{'---|' * 10}")
    for r in results:
        ours = row_of(r, "nnaot", dtype)
        if not ours:
            continue
        torch = [row_of(r, kind, dtype) for kind in TORCH]
        best, inference = best_torch(r, dtype), row_of(r, INFERENCE, "f32")
        cells = [MODELS[r["model"]].title, f"{ours['ms']:.2f}", *(f"{t['ms']:.2f}" if t else "" for t in torch),
                 f"**{best['ms'] / ours['ms']:.2f}**" if best else "",
                 f"{ours['mib']:.0f}, {leanest_torch(r, dtype):.0f}" if best else f"{ours['mib']:.0f}",
                 *(f"{ours['first'][i]:.2f}, {torch[0]['first'][i]:.1f}" if torch[0] else f"{ours['first'][i]:.2f}"
                   for i in range(2)),
                 f"{inference['ms']:.2f}" if inference else ""]
        print(f"| {' | '.join(cells)} |")
    ratio = ratios(results, dtype)
    if ratio:
        print(f"\n{dtype}: geometric mean of {len(ratio)} ratios {geomean(ratio.values()):.2f},"
              f" least {min(ratio.values()):.2f} ({min(ratio, key=ratio.get)})")


# -- Pictures ----------------------------------------------------------------------------------

def svg(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#e3e3df"/>\n' + "\n".join(body) + "\n</svg>\n")


def text(x, y, words, anchor="start", color="#333333"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{html.escape(words)}</text>'


def speed(results, dtypes, machine):
    from bench_models import MODELS
    left, right, bar, top = 330, 840, 13, 46
    ratio = {dtype: ratios(results, dtype) for dtype in dtypes}
    most = max(max(r.values(), default=1) for r in ratio.values())
    scale = (right - left - 40) / most
    step = bar * len(dtypes) + 11
    height = top + step * len(results) + 16
    out = [text(14, 22, f"Training speed: times as fast as the best of PyTorch eager and torch.compile ({machine})"),
           f'<line x1="{left + scale:.1f}" y1="{top - 8}" x2="{left + scale:.1f}" y2="{height - 12}" stroke="#999999"/>']
    for i, result in enumerate(results):
        y = top + i * step
        out.append(text(left - 10, y + step / 2, MODELS[result["model"]].title, "end"))
        for j, dtype in enumerate(dtypes):
            value = ratio[dtype].get(result["model"])
            if value is None:
                continue
            out.append(f'<rect x="{left}" y="{y + j * bar}" width="{value * scale:.1f}" height="{bar - 2}" '
                       f'fill="{COLORS[dtype]}"/>')
            out.append(text(left + value * scale + 5, y + j * bar + bar - 3, f"{value:.2f} {dtype}", color=COLORS[dtype]))
    return svg(860, height, out)


def losses(results):
    """Curves of nnaot and eager PyTorch in each type with the mean of the last steps, a panel for each model."""
    from bench_models import MODELS
    width, panel, left = 860, 190, 60
    styles = [("nnaot", "f32", "#2f6fb5", ""), ("torch eager", "f32", "#7a7a76", "6 3"),
              ("nnaot", "bf16", "#c2622d", ""), ("torch eager", "bf16", "#3f8f4f", "6 3")]
    out = []
    for i, result in enumerate(results):
        top = 30 + i * panel
        lines = [(row_of(result, kind, dtype), kind, dtype, color, dash) for kind, dtype, color, dash in styles]
        lines = [line for line in lines if line[0]]
        every = [x for line in lines for x in line[0]["losses"]]
        low, high = min(every), max(every)
        out += [text(14, top - 8, MODELS[result["model"]].title), text(left - 6, top + 8, f"{high:.2f}", "end"),
                text(left - 6, top + panel - 50, f"{low:.2f}", "end")]
        for j, (row, kind, dtype, color, dash) in enumerate(lines):
            n = len(row["losses"])
            points = " ".join(f"{left + 560 * s / max(n - 1, 1):.1f},{top + (panel - 54) * (high - x) / (high - low):.1f}"
                              for s, x in enumerate(row["losses"]))
            out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.3" stroke-dasharray="{dash}"/>')
            last = row["losses"][-LAST:]
            out.append(text(left + 575, top + 14 + 17 * j, f"{kind}, {dtype}: {sum(last) / len(last):.4f}", color=color))
    return svg(width, 30 + panel * len(results), out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("results", type=pathlib.Path)
    p.add_argument("--speed", type=pathlib.Path)
    p.add_argument("--losses", type=pathlib.Path)
    p.add_argument("--machine", default="two cores")
    a = p.parse_args()
    results = [json.loads(line) for line in a.results.read_text().splitlines()]
    dtypes = [d for d in COLORS if any(row_of(r, "nnaot", d) for r in results)]
    for dtype in dtypes:
        table(results, dtype)
    if a.speed:
        a.speed.write_text(speed(results, dtypes, a.machine))
    if a.losses:
        a.losses.write_text(losses(results))


if __name__ == "__main__":
    main()
