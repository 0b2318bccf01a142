"""Persistent state in host memory between steps changes no bit, and frees device memory.

    offload.py      gpt2 with dropout, mlp and resnet, on 1 to 4 ranks, with ZeRO, tensor parallelism, stages, recompute,
                    swap, 16 bits, and optimizers of one and two states

Each is trained for 4 steps under a plan and under the same plan with `offload`.  Losses, gradient norms and weights are
bit-identical.  All states of the optimizer are in host memory, with the number of bytes computed here from the weights, and
the device needs less by most of that, except in models with few saved activations: there the peak is in the updates, not
in backward.  A checkpoint of each is resumed under the other, with the results of an uninterrupted run.
"""

import json
import pathlib
import shutil
import sys

import sample_cases
from common import NNAOT, compile_in_a_hurry, run, scratch

STEPS, BEFORE = 4, 2
ADAM, MOMENTUM, LAMB = [], ["--optimizer", "sgd:momentum=0.9"], ["--optimizer", "lamb"]
# Model, ranks, plan without and with, flags, and the number of states of each weight.
CASES = [("gpt2_drop", 1, "dp", "offload", ADAM, 2),
         ("gpt2_drop", 1, "dp", "offload", MOMENTUM, 1),
         ("gpt2_drop", 2, "zero1=2", "zero1=2,offload=1", LAMB, 2),
         ("gpt2_drop", 4, "dp", "offload", ["--dtype", "bf16"], 2),
         ("gpt2_drop", 4, "zero1=4", "zero1=4,offload=1", ["--micro-batches", 2], 2),
         ("gpt2_drop", 4, "zero2=4", "zero2=4,offload=1", ["--dtype", "f16"], 2),
         ("gpt2_drop", 4, "zero3=4,recompute=1", "zero3=4,recompute=1,offload=1", ["--micro-batches", 2], 2),
         ("gpt2_drop", 4, "zero3=4,swap=1", "zero3=4,swap=1,offload=1", ADAM, 2),
         ("gpt2_drop", 4, "tp=4", "tp=4,offload=1", ADAM, 2),
         ("gpt2_drop", 4, "pp=2,dp=2", "pp=2,offload=2", ["--micro-batches", 4], 2),
         ("gpt2_drop", 2, "pp_zb_h1=2", "pp_zb_h1=2,offload=1", ["--micro-batches", 4], 2),
         ("resnet", 2, "dp=2", "offload=2", ADAM, 2),
         ("mlp", 1, "dp", "offload", ADAM, 2)]
# Few saved activations: the memory peak is in the updates, three of them at once.
NO_LESS = ["mlp"]


class Program:
    def __init__(self, folder, name, model, ranks, plan, flags):
        self.exe, self.data = folder / name, sample_cases.data_flags(model, folder)
        self.checkpoints, self.log, self.saved = folder / "checkpoints", folder / "log.jsonl", folder / "saved"
        summary = folder / "summary.json"
        run(NNAOT, *sample_cases.compile_flags(model, folder), "-g", ranks, "--plan", plan, "--train-mode", "--summary", summary,
            *flags, "-o", self.exe)
        per_rank = json.loads(summary.read_text())["per_rank"]
        self.device, self.host = ([rank[key] for rank in per_rank] for key in ("peak_bytes", "host_bytes"))

    def trained(self, steps, *flags):
        """Trains; returns losses, norms and weights."""
        run(self.exe, *self.data, "--steps", steps, "--log", self.log, "--save", self.saved, *flags)
        lines = [(line["loss"], line["grad_norm"]) for line in map(json.loads, self.log.read_text().splitlines())]
        self.log.unlink()
        return lines, self.saved.read_bytes()

    def resumed(self, first):
        """Resumes from a checkpoint of the other program."""
        first.trained(BEFORE, "--checkpoint-dir", first.checkpoints, "--checkpoint-every", BEFORE)
        got = self.trained(STEPS, "--checkpoint-dir", first.checkpoints, "--resume")
        shutil.rmtree(first.checkpoints)
        return got


def state_bytes(program, folder, n):
    """Returns the bytes of n f32 states for each trained parameter, of all ranks together."""
    said = json.loads(run(program.exe, "--describe"))
    return 4 * n * said["trained_parameters"]


def one_case(folder, model, ranks, plain, plan, flags, n):
    before = Program(folder, "before", model, ranks, plain, flags)
    after = Program(folder, "after", model, ranks, plan, flags)
    want = before.trained(STEPS)
    same = after.trained(STEPS) == want
    lines, weights = want
    resumed = all(second.resumed(first) == (lines[BEFORE:], weights)
                  for first, second in ((before, after), (after, before)))
    least = state_bytes(after, folder, n)
    saved = [b - a for b, a in zip(before.device, after.device)]
    ok = same and resumed and len(lines) == STEPS and sum(after.host) - sum(before.host) >= least
    ok = ok and (model in NO_LESS or all(s > 0 for s in saved))
    print(f"{model:10}{ranks:2} {plan:30} {' '.join(map(str, flags)):28}{max(before.device):>10}{max(after.device):>10}"
          f"{max(after.host):>10} {'ok' if ok else 'FAILED'}{'' if same else ', other numbers'}"
          f"{'' if resumed else ', resumed otherwise'}", flush=True)
    return ok


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        return not all([one_case(folder, *case) for case in CASES])


if __name__ == "__main__":
    sys.exit(main())
