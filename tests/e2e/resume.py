"""Kill -9 at random times, then --resume: the final weights are bit-equal to an uninterrupted run.

    resume.py [KILLS] [RANKS]      20 kills of the mlp by default
"""

import pathlib
import random
import subprocess
import sys
import time

import common
from common import check, compile_sample, data_flags, read_log, run, scratch, train

STEPS = 400


def resume_under_others(exe, folder):
    """A checkpoint of another plan, or of a model with the same tensors, is resumed with a note."""
    for name, plan, said in (("plan", dict(ranks=2), "the checkpoint was written under another plan: "),
                             ("model", dict(optimizer="adamw", extra=["--clip-norm", 1]),
                              "the checkpoint is of another model, loss, optimizer or batch, or of a plan that changes the "
                              "program, with the same tensors: model ")):
        other, directory = folder / f"other-{name}", folder / f"{name}-checkpoints"
        compile_sample("mlp", other, **plan)
        run(exe, *data_flags("mlp"), "--steps", 2, "--checkpoint-dir", directory)
        flags = [*data_flags("mlp"), "--checkpoint-dir", directory, "--resume", "--steps"]
        check("the same program says nothing of it", "checkpoint" not in run(exe, *flags, 3))
        text = run(other, *flags, 4)
        check(f"another {name} is said", said in text and "warning" not in text, text)


def main(kills=20, ranks=1):
    random.seed(7)
    with scratch() as folder:
        folder = pathlib.Path(folder)
        exe = folder / "mlp"
        compile_sample("mlp", exe, ranks=ranks)
        whole = train(exe, "mlp", STEPS, folder / "whole.jsonl", ["--save", folder / "whole.safetensors"])
        command = [exe, *data_flags("mlp"), "--steps", STEPS, "--log", folder / "log.jsonl", "--checkpoint-dir",
                   folder / "checkpoints", "--checkpoint-every", 3, "--keep", 2, "--resume", "--save",
                   folder / "resumed.safetensors"]
        killed = 0
        while killed < kills:
            # Every run checkpoints after three steps at the latest, so each makes progress.
            job = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0.005, 0.12))
            if job.poll() is None:
                job.kill()
                killed += 1
            if job.wait() == 0:
                (folder / "resumed.safetensors").unlink()
                for path in (folder / "checkpoints").iterdir():
                    run("rm", "-r", path)
                (folder / "log.jsonl").unlink()
        print(run(*command)[-300:])
        same = (folder / "whole.safetensors").read_bytes() == (folder / "resumed.safetensors").read_bytes()
        log = read_log(folder / "log.jsonl")
        same_log = [(r["step"], r["loss"]) for r in log] == [(r["step"], r["loss"]) for r in whole]
        if ranks == 1:
            resume_under_others(exe, folder)
        print(f"{killed} kills; weights {'equal' if same else 'DIFFER'}, log {'equal' if same_log else 'DIFFERS'}")
    return not (same and same_log) or common.failures > 0


sys.exit(main(*map(int, sys.argv[1:])))
