"""Sums of gradients in host memory between micro-batches change no bit, and free device memory.

    offload_gradients.py      gpt2 with dropout and mlp, on 1 to 4 ranks, with ZeRO, tensor, sequence and context parallelism,
                              stages and their schedules, recompute, swap, offloaded states, clipping and 16 bits

Each is trained for 4 steps under a plan and under the same plan with `offload_gradients`.  Losses, gradient norms and weights
are bit-identical.  The sums of all trained weights are in host memory, with the number of bytes computed here from the weights,
and the device needs less.  A plan with numbers of layers offloads fewer.
"""

import json
import pathlib
import sys

import sample_cases
from common import NNAOT, compile_in_a_hurry, run, scratch

STEPS = 4
# Model, ranks, plan, the rest of the plan with offloaded gradients, and flags.
FOUR = ["--micro-batches", 4]
CASES = [("gpt2_drop", 1, "dp", "offload_gradients=1", FOUR),
         ("gpt2_drop", 1, "dp", "offload_gradients=1", ["--batch", 4, "--accumulate", 2]),
         ("gpt2_drop", 2, "dp=2", "offload_gradients=1,offload=1", FOUR),
         ("gpt2_drop", 2, "dp=2", "offload_gradients=1", [*FOUR, "--clip-norm", 0.5]),
         ("gpt2_drop", 4, "zero1=4", "offload_gradients=1", ["--micro-batches", 2]),
         ("gpt2_drop", 4, "zero1=4", "offload_gradients=1,offload=1", ["--micro-batches", 2, "--dtype", "bf16"]),
         ("gpt2_drop", 4, "zero2=4", "offload_gradients=1", ["--micro-batches", 2, "--dtype", "f16", "--clip-norm", 0.5]),
         ("gpt2_drop", 4, "zero3=4,recompute=1", "offload_gradients=1", ["--micro-batches", 2]),
         ("gpt2_drop", 4, "zero3=4,swap=1", "offload_gradients=1,offload=1", ["--micro-batches", 2]),
         ("gpt2_drop", 4, "tp=4", "offload_gradients=1", FOUR),
         ("gpt2_drop", 4, "tp2d=4", "offload_gradients=1", ["--micro-batches", 2]),
         ("gpt2_drop", 4, "tp2d=4", "offload_gradients:1=1", [*FOUR, "--clip-norm", 0.5]),
         ("gpt2_drop", 4, "sp=4", "offload_gradients=1", ["--micro-batches", 2]),
         ("gpt2_drop", 4, "cp=4", "offload_gradients=1", ["--micro-batches", 2]),
         ("gpt2_drop", 4, "pp=2,dp=2", "offload_gradients=1", FOUR),
         ("gpt2_drop", 4, "pp=2,zero1=2", "offload_gradients:1=1,offload=1", [*FOUR, "--dtype", "bf16"]),
         ("gpt2_drop", 2, "pp_zb_h1=2", "offload_gradients=1", FOUR),
         ("gpt2_drop", 2, "pp_interleaved=2", "offload_gradients=1", FOUR),
         ("mlp", 2, "zero1=2", "offload_gradients=1", ["--micro-batches", 2, "--optimizer", "lamb"])]
# One bucket of all gradients is on the device while ranks add them up.
NO_LESS = [("dp=2", "offload_gradients=1")]
# The model's layers are repeated subgraphs: a plan with numbers offloads the sums of some weights.
SOME = "offload_gradients:"


class Program:
    def __init__(self, folder, name, model, ranks, plan, flags):
        self.exe, self.data = folder / name, sample_cases.data_flags(model, folder)
        self.log, self.saved, summary = folder / "log.jsonl", folder / "saved", folder / "summary.json"
        run(NNAOT, *sample_cases.compile_flags(model, folder), "-g", ranks, "--plan", plan, "--train-mode", "--summary", summary,
            *flags, "-o", self.exe)
        per_rank = json.loads(summary.read_text())["per_rank"]
        self.device, self.host = ([rank[key] for rank in per_rank] for key in ("peak_bytes", "host_bytes"))

    def trained(self):
        """Trains; returns losses, norms and weights."""
        run(self.exe, *self.data, "--steps", STEPS, "--log", self.log, "--save", self.saved)
        lines = [(line["loss"], line["grad_norm"]) for line in map(json.loads, self.log.read_text().splitlines())]
        self.log.unlink()
        return lines, self.saved.read_bytes()


def gradient_bytes(program, ranks, plan):
    """Returns the bytes of f32 sums of all trained weights, of all ranks together: replicas have sums of their own."""
    said = json.loads(run(program.exe, "--describe"))
    copies = ranks if plan.startswith(("dp", "zero1")) else 2 if "dp=2" in plan or "zero1=2" in plan else 1
    return 4 * copies * said["trained_parameters"]


def one_case(folder, model, ranks, plain, more, flags):
    before = Program(folder, "before", model, ranks, plain, flags)
    after = Program(folder, "after", model, ranks, f"{plain},{more}", flags)
    want = before.trained()
    same = after.trained() == want
    lines, _ = want
    least = gradient_bytes(after, ranks, plain)
    host = sum(after.host) - sum(before.host)
    fewer = (plain, more) in NO_LESS or all(a < b for b, a in zip(before.device, after.device))
    enough = 0 < host if SOME in more else host >= least
    ok = same and len(lines) == STEPS and enough and fewer
    print(f"{model:10}{ranks:2} {plain:20} {more:34} {' '.join(map(str, flags)):38}{max(before.device):>10}{max(after.device):>10}"
          f"{max(after.host):>10} {'ok' if ok else 'FAILED'}{'' if same else ', other numbers'}"
          f"{'' if enough else f', {host} bytes instead of {least}'}", flush=True)
    return ok


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        return not all([one_case(folder, *case) for case in CASES])


if __name__ == "__main__":
    sys.exit(main())
