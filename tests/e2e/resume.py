"""Kill -9 at random times, then --resume: the final weights are bit-equal to an uninterrupted run.

    resume.py [KILLS] [RANKS]      20 kills of the mlp by default
"""

import pathlib
import random
import subprocess
import sys
import time

from common import compile_sample, data_flags, read_log, run, scratch, train

STEPS = 400


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
        print(f"{killed} kills; weights {'equal' if same else 'DIFFER'}, log {'equal' if same_log else 'DIFFERS'}")
    return not (same and same_log)


sys.exit(main(*map(int, sys.argv[1:])))
