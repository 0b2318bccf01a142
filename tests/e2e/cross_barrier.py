"""What a step owes to the next one changes no bit.

    cross_barrier.py      mlp, resnet and gpt2 with dropout, on 2 and 4 ranks: threads, and processes; with micro-batches,
                          accumulation, labels that are counted, tensor parallelism, recompute, swap, 16 bits, optimizers
                          of no state to two

Each is trained for 5 steps under a plan and under the same plan with `cross_barrier`.  Losses, gradient norms, losses of
evaluations in between, and weights are the same bits.  A checkpoint of each, from the middle, goes on under the other, as if
there had been but one.  A step sends what was predicted.  Buckets are small, so that many are under way at the end of a
step, with a barrier and without: passes from pack_grads on run by themselves.
"""

import json
import pathlib
import shutil
import sys

import sample_cases
from common import NNAOT, mpirun, run, scratch
from plans import compile_in_a_hurry, counted_traffic, predicted_traffic

STEPS, BEFORE, BUCKET = 5, 2, 16384
REST = ("pack_grads(bucket={bucket}),stash,widen,hoist,fuse,schedule,offload,carry,hurry(cluster=\"{cluster}\"),overlap,swap,"
        "plan_memory")
ADAM, MOMENTUM, SGD, LAMB = ([*flags, "--clip-norm", 0] for flags in (
    [], ["--optimizer", "sgd:momentum=0.9"], ["--optimizer", "sgd"], ["--optimizer", "lamb"]))
# Model, ranks, plan without and with, flags, how many processes.
CASES = [("mlp", 2, "dp", "cross_barrier", ADAM, 0),
         ("mlp", 4, "dp", "cross_barrier", MOMENTUM, 4),
         ("mlp", 2, "dp", "cross_barrier", [*SGD, "--micro-batches", 2], 0),
         ("mlp", 2, "dp", "cross_barrier", [*ADAM, "--loss", "cross_entropy(logits,ignore_index=3)"], 0),
         ("gpt2_drop", 2, "dp", "cross_barrier", ADAM, 2),
         ("gpt2_drop", 4, "dp", "cross_barrier", [*LAMB, "--micro-batches", 2], 0),
         ("gpt2_drop", 2, "dp", "cross_barrier", [*ADAM, "--dtype", "bf16", "--micro-batches", 2], 0),
         ("gpt2_drop", 2, "dp", "cross_barrier", [*MOMENTUM, "--batch", 4, "--accumulate", 2], 2),
         ("gpt2_drop", 4, "dp=2,tp=2", "dp=2,tp=2,cross_barrier=1", SGD, 4),
         ("gpt2_drop", 2, "sp", "sp=2,cross_barrier=1", ADAM, 0),
         ("gpt2_drop", 2, "dp=2,recompute=1", "dp=2,recompute=1,cross_barrier=1", ADAM, 0),
         ("gpt2_drop", 2, "dp=2,swap=1", "dp=2,swap=1,cross_barrier=1", ADAM, 0),
         ("resnet", 2, "dp", "cross_barrier", ADAM, 0),
         ("resnet", 4, "dp", "cross_barrier", MOMENTUM, 4)]
# Evaluated while something is owed.
EVALUATED = ["mlp", "resnet"]


class Program:
    def __init__(self, folder, name, model, ranks, plan, flags):
        self.exe, self.data = folder / name, sample_cases.data_flags(model, folder)
        self.checkpoints, self.log, self.saved = folder / "checkpoints", folder / "log.jsonl", folder / "saved"
        if model in EVALUATED:
            self.data = [*self.data, "--eval-every", 2, *(x for f in self.data[1::2] for x in ("--eval-input", f))]
        dumps = folder / f"{name}.dumps"
        run(NNAOT, *sample_cases.compile_flags(model, folder), "-g", ranks, "--plan", plan, "--train-mode", *flags, "--emit",
            "plan", "-o", folder / "plan.json", "--dump-dir", dumps)
        before = next(dumps.glob("*-fuse_comm.nn"))
        rest = REST.format(bucket=BUCKET, cluster=f"cpu:{ranks}x1")
        manifest, self.traffic = folder / "manifest.json", folder / "traffic.json"
        self.stats = run(NNAOT, before, "--passes", rest, "--stats", "--comm-manifest", manifest, "-o", self.exe)
        self.sends = predicted_traffic(json.loads(manifest.read_text()))
        shutil.rmtree(dumps)

    def trained(self, steps, *flags, processes=0):
        """Losses, norms, losses of evaluations; and weights."""
        self.log.unlink(missing_ok=True)
        run(*(mpirun(processes) if processes else ()), self.exe, *self.data, "--steps", steps, "--log", self.log, "--save",
            self.saved, "--traffic", self.traffic, *flags)
        lines = [(line["loss"], line["grad_norm"], line.get("eval_loss"))
                 for line in map(json.loads, self.log.read_text().splitlines())]
        return lines, self.saved.read_bytes()

    def sent(self):
        """By the last run, as it should be."""
        return counted_traffic(json.loads(self.traffic.read_text())) == self.sends

    def resumed(self, first):
        """From where the other has ended."""
        first.trained(BEFORE, "--checkpoint-dir", first.checkpoints, "--checkpoint-every", 1)
        got = self.trained(STEPS, "--checkpoint-dir", first.checkpoints, "--resume")
        shutil.rmtree(first.checkpoints)
        return got


def counted(stats, what):
    return next((int(line.split()[1]) for line in stats.splitlines() if line.endswith(what)), 0)


def one_case(folder, model, ranks, plain, plan, flags, processes):
    before = Program(folder, "before", model, ranks, plain, flags)
    after = Program(folder, "after", model, ranks, plan, flags)
    want = before.trained(STEPS)
    same = after.trained(STEPS) == want and (not processes or after.trained(STEPS, processes=processes) == want)
    sent = after.sent()
    lines, weights = want
    resumed = all(second.resumed(first) == (lines[BEFORE:], weights)
                  for first, second in ((before, after), (after, before)))
    carried = counted(after.stats, "under way at the end of a step")
    ok = same and sent and resumed and len(lines) == STEPS and carried > 0
    wrong = [what for fine, what in ((same, "other numbers"), (sent, "other messages"), (resumed, "resumed otherwise"))
             if not fine]
    print(f"{model:10}{ranks:2} {plan:34} {' '.join(map(str, flags)):62}{carried:4} "
          f"{', '.join(['ok' if ok else 'FAILED', *wrong])}", flush=True)
    return ok


def main(models):
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        return not all([one_case(folder, *case) for case in CASES if not models or case[0] in models])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
