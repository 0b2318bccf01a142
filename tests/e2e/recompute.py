"""Recomputation changes no loss and saves memory.

    recompute.py     gpt2 with dropout, mlp and resnet, on 1, 2 and 4 ranks

Each is trained for 6 steps under a plan and under the same plan with `recompute`.  Losses and gradient norms are
bit-identical: each kernel computes from the same numbers, in the same order, including Dropout's random numbers; and
BatchNormalization updates its statistics once, which the comparison of trained weights shows.  Each rank needs less memory.
"""

import json
import pathlib
import sys

import sample_cases
from common import NNAOT, compile_in_a_hurry, counted_plan, run, scratch

STEPS = 6
CASES = [("mlp", 1, "dp", "recompute"), ("resnet", 1, "dp", "recompute"), ("gpt2_drop", 1, "dp", "recompute"),
         ("gpt2_drop", 2, "dp", "recompute"), ("resnet", 2, "dp", "recompute"),
         ("gpt2_drop", 4, "tp", "tp=4,recompute=1"), ("gpt2_drop", 2, "dp", "recompute_attention"),
         ("gpt2_drop", 1, "coshard", "coshard=1,recompute=1"),
         ("gpt2_drop", 1, "coshard", "coshard=1,recompute_pieces=1"),
         ("gpt2_drop", 1, "coshard:4", "coshard:4=1,recompute_pieces_2=1"),
         ("gpt2_drop", 2, "coshard:4@1:2@2", "recompute_pieces:4@1:2@2")]
# Saved activations of a layer are small compared with its weights.
NO_LESS = ["mlp"]


def trained(folder, model, ranks, plan):
    exe, log = pathlib.Path(folder, "exe"), pathlib.Path(folder, "log.jsonl")
    summary, saved = pathlib.Path(folder, "summary.json"), pathlib.Path(folder, "saved")
    run(NNAOT, *sample_cases.compile_flags(model, folder), "-g", ranks, "--plan", counted_plan(plan, folder), "--train-mode", "--summary",
        summary, "-o", exe)
    log.unlink(missing_ok=True)
    run(exe, *sample_cases.data_flags(model, folder), "--steps", STEPS, "--log", log, "--export", saved)
    lines = [(line["loss"], line["grad_norm"]) for line in map(json.loads, log.read_text().splitlines())]
    return lines, saved.read_bytes(), json.loads(summary.read_text())


def main():
    failed = 0
    with scratch() as folder:
        for i, (model, ranks, without, plan) in enumerate(CASES):
            if i == 1:
                compile_in_a_hurry(folder)  # the first case has the users' cc
            want, weights, before = trained(folder, model, ranks, without)
            got, anew, after = trained(folder, model, ranks, plan)
            need = [max(rank["peak_bytes"] for rank in summary["per_rank"]) for summary in (before, after)]
            ok = len(want) == STEPS and got == want and anew == weights and (need[1] < need[0] or model in NO_LESS)
            print(f"{model:9} {ranks} {plan:22} {need[0]:>9} {need[1]:>9} {'ok' if ok else 'FAILED'}", flush=True)
            failed += not ok
    return failed > 0


sys.exit(main())
