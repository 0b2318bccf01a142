"""Checks that plans cut the same in f32, bf16 and f16:  same_cuts.py [PLAN …]

In 16 bits a weight is read through a cast, so a plan that asks an operand for its role or its op may see the cast instead.
Named plans, those of nnScaler's table 8 among them, are written by `--emit plan` on 4 and 8 ranks, in the three types.
Their rows must be the same, except for those of casts and of the loss scale: for each op its splits, for each weight and
state its layout.  A difference prints the rows.  Under zero1 and zero2 a weight of a step in 16 bits has the layout of its
states, if not its own in f32.

Each plan must also split what its name says: the kinds of ops in its row of PLANS, along some axis.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "e2e"), str(TESTS / "bench")]
import paper_models  # noqa: E402
from plan_cases import MODELS, compile_flags  # noqa: E402

NNAOT = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot")
DTYPES = ["f32", "bf16", "f16"]
CUT = ["--micro-batches", "4"]
# Plan, with N for the ranks and H for half of them; models; flags; kinds of ops that are split on some axis.
PLANS = [
    ("dp", ["vit"], [], ["linear"]),
    ("tp", ["gpt", "paper_t5"], [], ["linear"]),
    ("sp", ["gpt_tied", "paper_t5"], [], ["linear", "layer_norm"]),
    ("vp", ["gpt_tied", "bert", "paper_t5"], [], ["linear", "gather", "nll"]),
    ("dp=H,vp=2", ["paper_t5"], [], ["linear", "gather", "nll"]),
    ("tp2d", ["gpt", "wide"], [], ["linear"]),
    ("tp3d", ["vit", "wide"], [], ["linear"]),
    ("ep", ["moe"], [], ["matmul"]),
    ("dap", ["axial"], [], ["softmax"]),
    ("zero1", ["paper_t5"], [], ["adam"]),
    ("zero2", ["gpt"], CUT, ["adam"]),
    ("zero3", ["gpt_tied", "moe"], [], ["adam"]),
    ("tp=2,zero3=H", ["paper_t5"], [], ["adam", "linear"]),
    ("coshard=N,recompute=1", ["gpt"], [], ["linear"]),
    ("coshard=N,recompute_pieces=1", ["vit"], [], ["linear"]),
    ("recompute", ["gpt"], [], ["linear"]),
    ("recompute_attention", ["bert"], [], ["linear"]),
    ("swap", ["gpt"], [], ["linear"]),
    ("offload", ["gpt"], [], ["linear"]),
    ("pp=H,dp=2", ["gpt"], CUT, ["linear"]),
    ("pp_gpipe=H,tp=2", ["paper_t5"], CUT, ["linear"]),
    ("pp_zb_h1=H,vp=2", ["paper_t5"], CUT, ["linear", "gather", "nll"]),
    ("pp_interlaced", ["gpt_tied"], CUT, ["linear", "gather", "nll"]),
    ("pp_interlaced=2,tp=H", ["paper_t5"], CUT, ["linear", "gather", "nll"]),
    ("pp_interleaved=2,tp=H", ["gpt"], CUT, ["linear"]),
    ("pp_chimera=H,tp=2", ["bert"], CUT[:1] + ["4"], ["linear"]),
    ("pp_3f1b=H,dp=2", ["recycle"], CUT[:1] + ["4"], ["linear"]),
    ("pp_terapipe=H,tp=2", ["gpt"], CUT[:1] + ["4"], ["linear"]),
]
NAME, END = r' +{}_row\(("[^"]*"|\{{[^}}]*\}}), +("[^"]*"), +', r"(.*?)\)(?: +-- (.*))?$"
OP_ROW = re.compile(NAME.format("op") + r'("[^"]*"), +(\d+|\{[^}]*\}), +' + END)
PARAM_ROW = re.compile(NAME.format("param") + "()()" + END)
OWN = '"cast"', '"fill"', '"broadcast"'  # kinds of which types have their own
AXES = re.compile(r"function factors\(n\) return \{ (.*?) \}")
SPLIT = re.compile(r'\{ "(.)", (?:\{[^}]*\}|ranks\[\d+\]) \}|"(.)"|\{ (\d) \}|(\d)|(false)')


def numbers(text):
    return [int(n) for n in re.findall(r"-?\d+", text)]


def names(text):
    """The names of a row: "/fc", or { "/h.#/fc", 0, 11 } and { "/h.#/fc", 0, 10, 2 } for several."""
    if text[0] == '"':
        return [text]
    name, rest = re.fullmatch(r'\{ ("[^"]*"), (.*) \}', text).groups()
    first, last, *step = numbers(rest)
    return [name.replace("#", str(i)) for i in range(first, last + 1, *step)]


def rows(text):
    """The rows of a plan, one of each op and parameter, without those that only 16 bits have: key -> splits, along the axes
    of more than one rank.  The ranks of stages are left out, as prices balance these; and `+` is `-`, as
    partial sums do not pass a cast to 16 bits."""
    found, graph = {}, None
    sizes = numbers(AXES.search(text).group(1))
    for line in text.splitlines():
        graph = line.split('"')[1] if line.startswith("  if graph()") else None if line == "  end" else graph
        row = OP_ROW.match(line) or PARAM_ROW.match(line)
        if not row:
            assert not line.lstrip().startswith(("op_row", "param_row")), line
            continue
        name, kind, part, which, splits, einsum = row.groups()
        scalar = part and not re.search("[a-zA-Z0-9]", einsum)
        if scalar or kind in OWN or name.startswith('"loss_scale') or part == '"update"' and kind != '"adam"':
            continue
        cut = [next(filter(None, m.groups())) for m in SPLIT.finditer(splits)]
        assert len(cut) == len(sizes), (line, cut)
        first, last = (numbers(which) * 2)[:2] if which else (0, 0)
        for n in names(name):
            for i in range(first, last + 1):
                found[graph, n, kind, part, i] = [c.replace("+", "-") for c, size in zip(cut, sizes) if size > 1]
    return found


def module(name, folder):
    """The flags that give nnaot a model."""
    if name in MODELS:
        return [*compile_flags(name, folder), "--batch", 32]
    for size in "TOKENS", "SOURCE", "TARGET":
        setattr(paper_models, size, 16)
    paper_models.WORDS = paper_models.MANY_WORDS = 60  # padded on 8 ranks
    text, loss = paper_models.MODELS[name.removeprefix("paper_")](8, 32, 8, 32)
    path = pathlib.Path(folder, f"{name}.nn")
    path.write_text(text)
    return [path, "--loss", loss]


def emitted(folder, model, ranks, plan, flags, dtype):
    out = pathlib.Path(folder, "plan.lua")
    command = [NNAOT, *module(model, folder), "-g", ranks, "--plan", plan, *flags, "--dtype", dtype, "--optimizer", "adamw",
               "--emit", "plan", "-o", out]
    run = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    return rows(out.read_text()) if run.returncode == 0 else run.stderr


def check(folder, model, ranks, plan, flags, kinds):
    """Returns the differences, as lines."""
    found = {dtype: emitted(folder, model, ranks, plan, flags, dtype) for dtype in DTYPES}
    errors = [f"{dtype}: {rows}" for dtype, rows in found.items() if isinstance(rows, str)]
    if errors:
        return errors
    want = found["f32"]
    lines = [f"{kind} is split along no axis in {dtype}" for dtype in DTYPES for kind in kinds
             if not any(k[2] == f'"{kind}"' and set(s) - {"-"} for k, s in found[dtype].items())]
    # These store weights as states in 16 bits, and pin what they gather: a reshape.
    stores = plan.startswith(("zero1", "zero2"))
    for dtype in DTYPES[1:]:
        for key in sorted({*want, *found[dtype]}, key=str):
            got, same = found[dtype].get(key), want.get(key)
            if stores and key[2] == '"reshape"' and None in (got, same):
                continue
            state = key[0], key[1][:-1] + '.exp_avg"', '"state"', *key[3:]
            if stores and key[2] == '"weight"' and got != same:
                same = want.get(state)
            if got != same:
                lines.append(f"{key}: {same} in f32, {got} in {dtype}")
    return lines


def main():
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, models, flags, kinds in PLANS:
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            for model in models:
                for ranks in (4, 8):
                    plan = re.sub("[NH]", lambda m: str(ranks if m.group() == "N" else ranks // 2), name)
                    lines = check(folder, model, ranks, plan, flags, kinds)
                    wrong += bool(lines)
                    if lines:
                        print(f"{model}, {ranks} ranks, {plan} {' '.join(flags)}:", *lines[:12], sep="\n  ")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
