"""Programs under a plan and under one with another time of weight updates: both must give the same bits.

Buckets are small, so that many all-reduces are in flight: the passes from bucket_grads on run separately.
"""

import json
import pathlib
import shutil

import sample_cases
from common import NNAOT, compile_in_a_hurry, mpirun, run, scratch
from plans import counted_traffic, predicted_traffic

STEPS, BEFORE, BUCKET = 5, 2, 16384
REST = ("bucket_grads(bucket={bucket}),stash_weights,legalize_types,optimizer_in_backward,fuse,schedule,offload,defer_updates,prioritize_comm(cluster=\"{cluster}\"),overlap,swap,"
        "plan_memory")
ADAM, MOMENTUM, SGD, LAMB = ([*flags, "--clip-norm", 0] for flags in (
    [], ["--optimizer", "sgd:momentum=0.9"], ["--optimizer", "sgd"], ["--optimizer", "lamb"]))
# Evaluated while updates are deferred.
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
        """Trains; returns losses, norms, losses of evaluations; and weights."""
        self.log.unlink(missing_ok=True)
        run(*(mpirun(processes) if processes else ()), self.exe, *self.data, "--steps", steps, "--log", self.log, "--save",
            self.saved, "--traffic", self.traffic, *flags)
        lines = [(line["loss"], line["grad_norm"], line.get("eval_loss"))
                 for line in map(json.loads, self.log.read_text().splitlines())]
        return lines, self.saved.read_bytes()

    def sent(self):
        """Whether the last run's traffic is as predicted."""
        return counted_traffic(json.loads(self.traffic.read_text())) == self.sends

    def resumed(self, first):
        """Resumes from a checkpoint of the other program."""
        first.trained(BEFORE, "--checkpoint-dir", first.checkpoints, "--checkpoint-every", 1)
        got = self.trained(STEPS, "--checkpoint-dir", first.checkpoints, "--resume")
        shutil.rmtree(first.checkpoints)
        return got


def counted(stats, what):
    return next((int(line.split()[1]) for line in stats.splitlines() if line.endswith(what)), 0)


def differences(before, after, processes):
    """Returns the failed comparisons: numbers, messages, or a run resumed from the other's checkpoint."""
    want = lines, weights = before.trained(STEPS)
    same = after.trained(STEPS) == want and (not processes or after.trained(STEPS, processes=processes) == want)
    sent = after.sent()
    resumed = all(second.resumed(first) == (lines[BEFORE:], weights)
                  for first, second in ((before, after), (after, before)))
    return [what for fine, what in ((same and len(lines) == STEPS, "other numbers"), (sent, "other messages"),
                                    (resumed, "resumed otherwise")) if not fine]


def run_cases(one_case, cases, models):
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        return not all([one_case(folder, *case) for case in cases if not models or case[0] in models])
