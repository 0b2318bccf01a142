"""Plans that recompute activations or keep them in host memory change no bit in 16 bits.

    rounding.py              a slice: routed experts, attention and a cnn
    rounding.py --all        all models
    rounding.py --model moe --dtype f16 --plan recompute      the cases with these
    rounding.py --emulated   a slice of GPU programs, on the emulator: their products have epilogues that compute in f32

Each model is trained for 3 steps on one rank, under `dp` and under other plans.  Losses, gradient norms and trained
weights are bit-identical: every result of a 16-bit op is rounded where it is computed, whichever kernel it is in.  Forward
and its recomputation are fused into different kernels, and `moe` compares recomputed probabilities with saved ones, so a
value that its kernel reads unrounded chooses other experts.
"""

import argparse
import os
import pathlib
import sys

import plan_cases
import sample_cases
from common import BUILD, NNAOT, compile_in_a_hurry, read_log, run, scratch

STEPS = 3
PLANS = ["recompute", "recompute_attention", "recompute_lookups", "swap", "offload", "recompute=1,swap=1"]
MODELS = {**{name: plan_cases for name in plan_cases.MODELS},
          **{name: sample_cases for name in ["mlp", "resnet", "gpt2", "gpt2_drop"]}}
DTYPES = ["f16", "bf16"]
# Model, type and plans; the first is compiled with the users' cc.
SLICE = [("moe", "f16", ["recompute", "recompute_attention"]), ("moe", "bf16", ["recompute", "recompute_attention", "swap"]),
         ("bert", "f16", ["recompute", "offload"]), ("resnet", "bf16", ["recompute"])]

# A product with a bias is one kernel, also if its sum is recomputed for gradients; so are the gradients of weight and bias.
EMULATED = [("bert", "bf16", ["recompute_attention"]), ("gpt2", "f16", ["recompute_attention", "recompute"])]


def trained(folder, model, dtype, plan, target):
    """Returns losses, gradient norms and weights."""
    cases, exe, log, saved = MODELS[model], *(pathlib.Path(folder, name) for name in ("exe", "log.jsonl", "saved"))
    run(NNAOT, *cases.compile_flags(model, folder), "-g", 1, "--plan", plan, "--dtype", dtype, "--target", target,
        "-o", exe)
    log.unlink(missing_ok=True)
    run(exe, *cases.data_flags(model, folder), "--steps", STEPS, "--log", log, "--export", saved)
    return [(line["loss"], line["grad_norm"]) for line in read_log(log)], saved.read_bytes()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--all", action="store_true")
    p.add_argument("--model", choices=MODELS)
    p.add_argument("--dtype", choices=["f32", *DTYPES])
    p.add_argument("--plan")
    p.add_argument("--emulated", action="store_true")
    a = p.parse_args()
    target, cases = "cuda:sm_90" if a.emulated else "cpu", EMULATED if a.emulated else SLICE
    if a.emulated:
        os.environ["NVCC"] = str(BUILD / "emulator" / "nvcc")
    if a.all or a.model or a.dtype or a.plan:
        cases = [(model, dtype, [a.plan] if a.plan else PLANS)
                 for model in ([a.model] if a.model else MODELS) for dtype in ([a.dtype] if a.dtype else DTYPES)]
    failed = n = 0
    with scratch() as folder:
        for i, (model, dtype, plans) in enumerate(cases):
            if i == (0 if a.emulated else 1):
                compile_in_a_hurry(folder)
            want, weights = trained(folder, model, dtype, "dp", target)
            for plan in plans:
                got, others = trained(folder, model, dtype, plan, target)
                ok = len(want) == STEPS and got == want and others == weights
                print(f"{model:11} {dtype:4} {plan:20} {'ok' if ok else f'FAILED: {got}, not {want}'}", flush=True)
                failed += not ok
                n += 1
    print(f"{n} plans, {failed} with other bits")
    return failed > 0


sys.exit(main())
