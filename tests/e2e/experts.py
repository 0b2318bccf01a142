"""Routed experts that drop rows beyond their capacity, and slots that are too few.

    capacity   M6, small (tests/bench/paper_models.py): tokens beyond an expert's capacity have no slot, and add nothing.  Losses
               and weights of ep, dp=2,ep=2 and pp=2,ep=2 are one rank's, in f32; losses in bf16 and f16, within their precision
    too few    slots for the mean number of rows only: a run that needs more ends with a message, in place of losing rows
"""

import json
import pathlib
import random
import sys

from common import NNAOT, ROOT, check, compile_in_a_hurry, finish, read_log, run, scratch, worst_difference, write_npy

sys.path.insert(0, str(ROOT / "tests" / "bench"))
import paper_models  # noqa: E402

STEPS, ROWS, TOKENS, WORDS, EXPERTS = 6, 16, 12, 64, 8


def compile_for(folder, model, loss, plan, ranks, *extra, ok=0):
    return run(NNAOT, model, "-g", ranks, "--plan", plan, "--loss", loss, "--optimizer", "adamw", "--lr", 0.003, "--init",
               "random:3", *extra, "-o", folder / "run", "--summary", folder / "summary", ok=ok)


def train(folder, data, ok=0):
    (folder / "log").unlink(missing_ok=True)
    said = run(folder / "run", "--input", data, "--steps", STEPS, "--log", folder / "log", ok=ok)
    return said if ok else [line["loss"] for line in read_log(folder / "log")]


def capacity(folder):
    paper_models.M6_TOKENS, paper_models.M6_WORDS, paper_models.ROWS_OF_GROUP = TOKENS, WORDS, 2
    text, loss = paper_models.m6(2, 16, 4, ROWS, EXPERTS, 24)
    check("rows are dropped", " capacity=4 drop=true" in text)  # of 24 tokens for 8 experts: the mean is 3
    model, data = folder / "m6.nn", folder / "tokens.npy"
    model.write_text(text)
    draw = random.Random(5)
    write_npy(data, [draw.randrange(WORDS) for _ in range(4 * ROWS * TOKENS)], (4 * ROWS, TOKENS), "<i8")
    for dtype, limit in ("f32", 1e-5), ("bf16", 0.01), ("f16", 0.01):
        compile_for(folder, model, loss, "dp", 1, "--dtype", dtype)
        want = train(folder, f"tokens={data}")
        for plan in "ep", "dp=2,ep=2", "pp=2,ep=2":
            compile_for(folder, model, loss, plan, 4, "--dtype", dtype)
            sent = json.loads((folder / "summary").read_text())["comm_bytes"]
            got = worst_difference(train(folder, f"tokens={data}"), want)
            check(f"losses of {plan} in {dtype}", got < limit, got)
            check(f"{plan} exchanges rows", sent["all_to_all"] > 0, sent)


def too_few(folder):
    """The same rows for all samples: the experts that these prefer have more than the mean."""
    plan, data = folder / "few.lua", folder / "same.npy"
    source = (ROOT / "passes/planner/plans/ep.lua").read_text()
    plan.write_text(source.replace("local capacity = 0 ", "local capacity = 1 "))
    check("the plan is another", plan.read_text() != source)
    write_npy(data, [7] * (8 * 16), (8, 16), "<i8")
    model = ROOT / "tests/e2e/models/routed.onnx"
    compile_for(folder, model, "next_token(logits,input_ids)", plan, 4, "--batch", 8)
    said = train(folder, f"input_ids={data}", ok=1)
    check("a run that needs more slots", "more than 8 rows of group 0 go to part" in said and "expert_slots" in said, said)
    check("and its cure", "hint:" in said and "capacity" in said, said)


if __name__ == "__main__":
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        capacity(folder)
        too_few(folder)
    finish()
