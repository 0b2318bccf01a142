"""Checks that interleaved plans deal a model to chunks as their schedule wants:  chunks.py [MODEL …]

`place(axis, {chunks = K})` on P ranks must make K P stages, stage i on rank i modulo P, whatever the model: with an encoder and
a decoder, experts beside one another, dropouts that share a seed, layers that P K does not divide.  `interleaved:K` refuses any
other. The compiled module is read: each forward on a single rank is a chunk, and has its backward there. Each model in f32,
bf16 and f16, for CPUs and for GPUs.
"""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "e2e"), str(TESTS / "bench")]
import paper_models  # noqa: E402
from plan_cases import compile_flags  # noqa: E402

NNAOT = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot")
RUN = re.compile(r"^  run devices=(\d+) (.*)$", re.M)
# Model, chunks, ranks.
CASES = [(model, chunks, ranks) for model in ("t5", "gpt", "vit", "swin", "moe") for chunks, ranks in ((2, 3), (2, 4), (3, 2))]
CASES += [("gpt_tied", 3, 4), ("bert", 3, 3), ("t5", 3, 4), ("paper_t5_4", 2, 4), ("paper_t5_16", 2, 4), ("paper_t5_4", 3, 3)]
CASES += [("paper_t5_4", 1, 3), ("paper_t5_16", 1, 4)]  # a table that is also that of the logits, on two stages
KINDS = itertools.cycle([("f32", "cpu"), ("bf16", "cpu"), ("f16", "cuda"), ("f32", "cuda"), ("f16", "cpu"), ("bf16", "cuda")])


def module(name, folder):
    """The flags that give nnaot a model."""
    if not name.startswith("paper_"):
        return compile_flags(name, folder)
    for size in "TOKENS", "SOURCE", "TARGET":
        setattr(paper_models, size, 16)
    text, loss = paper_models.t5(int(name.split("_")[-1]), 32, 4, 8, 64)
    path = pathlib.Path(folder, f"{name}.nn")
    path.write_text(text)
    return [path, "--loss", loss]


def dealt(text, chunks, ranks):
    """The lines that differ from the schedule's chunks."""
    on = {}
    for device, actions in RUN.findall(text):
        for segment in re.findall(r"\b([FB]\d+)\b", actions):
            on.setdefault(segment, set()).add(int(device))
    # Masks and the like are on the ranks of several stages.
    found = {kind: sorted((int(s[1:]), *d) for s, d in on.items() if s[0] == kind and len(d) == 1) for kind in "FB"}
    if [rank for _, rank in found["F"]] != [i % ranks for i in range(chunks * ranks)]:
        return [f"chunks, by rank: {[rank for _, rank in found['F']]}"]
    return [] if found["B"] == found["F"] else [f"forwards {found['F']}, backwards {found['B']}"]


def main():
    chosen = sys.argv[1:]
    failed = n = 0
    for (model, chunks, ranks), (dtype, target) in zip(CASES, KINDS):
        if chosen and model not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            plan, out = pathlib.Path(folder, "plan.lua"), pathlib.Path(folder, "out.nn")
            plan.write_text(f"function step(axis)\n  place(axis, {{chunks = {chunks}}})\n  schedule('interleaved:{chunks}')\nend\n")
            command = [NNAOT, *module(model, folder), "-g", ranks, "--plan", plan, "--micro-batches", 8, "--dtype", dtype,
                       "--target", target, "--emit", "nn", "-o", out]
            run = subprocess.run([str(c) for c in command], capture_output=True, text=True)
            lines = [run.stderr] if run.returncode else dealt(out.read_text(), chunks, ranks)
        n += 1
        failed += bool(lines)
        for line in lines:
            print(f"FAIL {model} in {chunks} chunks on each of {ranks} ranks, {dtype}, {target}: {line}")
    print(f"{n} plans, {failed} failed")
    sys.exit(failed > 0 or n == 0)


if __name__ == "__main__":
    main()
