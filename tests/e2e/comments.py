"""A module without its comments is the same module.

    comments.py            every row of plan_cases, with one model and one number of ranks, and every fifth of its texts:
                           successive rows begin with successive texts
    comments.py --all      with all of its models, and all texts

The text after every pass loses its comments and goes through the remaining passes.  The result must equal, except for
comments, that of the whole pipeline: so locations are only for readers, and a plan can be stopped and resumed
anywhere.  Without comments, too, the program of a rank is proved to compute the model.  Only --detach names nodes of the
file, which are in comments: such a model resumes after autodiff.
"""

import os
import pathlib
import re
import sys

import plan_cases
from common import BUILD, run, scratch

OPT = BUILD / "bin" / "nnaot-opt"
COMMENT = re.compile(r'^((?:[^"#\n]|"(?:[^"\\\n]|\\.)*")*?) *#.*$', re.M)


def without_comments(text):
    return COMMENT.sub(r"\1", text)


def passes_of(name):
    return re.search(rf"^ *{name} .*\n += (\S+)", run(OPT, "--list"), re.M)[1].split(",")


def detached(model):
    """Returns the detached nodes of the file, as --detach takes them; or ""."""
    flags = plan_cases.MODELS[model].get("flags", [])
    return flags[flags.index("--detach") + 1] if "--detach" in flags else ""


def pipeline(passes, model, plan, ranks, extra):
    """Returns the passes of nnaot for these options, with the options of each."""
    flags = dict(zip(extra[::2], extra[1::2]))
    slices = flags.get("--micro-batches", 1) * flags.get("--accumulate", 1)
    axes = [a.split("=") if "=" in a else (a, ranks) for a in plan.split(",")]
    mesh = "+".join([f"acc:{slices}:time", *(f"{pathlib.Path(a.split(':')[0]).stem}:{n}" for a, n in axes)])
    plans = ",".join(a for a, _ in axes)
    detach = detached(model)
    options = {
        "autodiff": f'(detach="{detach}")' if detach else "",
        "loss": f'(spec="{plan_cases.MODELS[model]["loss"]}")',
        "transform": f'(plan="{plans}" ranks="{",".join(str(n) for _, n in axes)}")',
        "optimizer": "(name=adamw clip=0.5)",
        "shard": f'(mesh="{mesh}" plan="{plans}" cluster=cpu unlimited=true)',
        "comm": f"(cluster={flags['--cluster']})" if "--cluster" in flags else "",
    }
    return [p + options.get(p, "") for p in passes]


def program(folder, *command):
    """Returns nnaot-opt's output without its comments."""
    out = folder / "out"
    run(OPT, *command, "-o", out)
    return without_comments(out.read_text())


def first_difference(got, want):
    for a, b in zip(got.splitlines(), want.splitlines()):
        if a != b:
            return f"\n  {a}\n  {b}"
    return " of length"


def check(passes, model, plan, ranks, extra, folder, begin, step):
    """Returns the number of tested texts, every `step`-th from `begin` on, and the number of different results.  A failed
    proof ends the test."""
    steps = pipeline(passes, model, plan, ranks, extra)
    whole = program(folder, plan_cases.HERE / f"{model}.onnx", "--batch", plan_cases.BATCH, "--passes", ",".join(steps),
                    "--dump-dir", folder)
    texts = sorted(folder.glob("[0-9]*.nn"))
    if len(texts) != len(steps) + 1:
        sys.exit(f"{len(texts)} texts of {len(steps)} passes")
    failed = 0
    first = passes.index("autodiff") + 1 if detached(model) else 0
    chosen = list(enumerate(texts))[first + begin::step]
    for i, text in chosen:
        bare = folder / "bare"
        bare.write_text(without_comments(text.read_text()))
        got = program(folder, bare, "--passes", ",".join(steps[i:]))
        if got != whole:
            failed += 1
            print(f"{plan} {model} {ranks}: goes elsewhere from {text.name}: difference{first_difference(got, whole)}")
    model_text, rank_text = texts[passes.index("shard")], texts[passes.index("bucket_grads") + 1]
    for text in model_text, rank_text:
        text.write_text(without_comments(text.read_text()))
    run(OPT, rank_text, "--prove", model_text)
    return len(chosen), failed


def main():
    every = "--all" in sys.argv
    texts = failed = 0
    for name in ["train", "train_cuda"] if every else ["train"]:
        passes = passes_of(name)
        for row, (plan, models, ranks, extra, _) in enumerate(plan_cases.PLANS):
            for model in dict.fromkeys(models) if every else models[:1]:
                with scratch() as folder:
                    some = (0, 1) if every else (row % 5, 5)
                    n, wrong = check(passes, model, plan, ranks[0], extra, pathlib.Path(folder), *some)
                texts, failed = texts + n, failed + wrong
    print(f"{texts} texts, {failed} go elsewhere without their comments")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
