"""Collectives over two axes together: eight ranks, as threads and as processes, train as one does.

The program is ../eval/joined.nn.  What a step sends is what nnaot predicts.
"""

import json
import shutil
import sys

from common import NNAOT, ROOT, SAMPLES, mpirun, read_log, run, scratch, worst_difference
from plans import counted_traffic, predicted_traffic

EVAL = ROOT / "tests" / "eval"


def train(exe, folder, launcher=()):
    run(*launcher, exe, "--input", f"x={SAMPLES / 'mlp' / 'x.npy'}", "--steps", 3, "--log", f"{folder}/log",
        "--traffic", f"{folder}/traffic")
    with open(f"{folder}/traffic") as f:
        return [row["loss"] for row in read_log(f"{folder}/log")], counted_traffic(json.load(f))


with scratch() as folder:
    one, all8 = f"{folder}/one", f"{folder}/all8"
    run(NNAOT, EVAL / "inputs" / "joined.nn", "--passes=shard,comm,fuse,plan_memory", "-o", one)
    run(NNAOT, EVAL / "joined.nn", "--passes=fuse,plan_memory", "-o", all8, "--comm-manifest", f"{folder}/manifest")
    with open(f"{folder}/manifest") as f:
        predicted = predicted_traffic(json.load(f))
    want, _ = train(one, folder)
    for launcher in [[], mpirun(8)] if shutil.which("mpirun") else [[]]:
        losses, sent = train(all8, folder, launcher)
        difference = worst_difference(losses, want)
        print(f"{' '.join(map(str, launcher)) or 'threads':12} largest relative difference {difference:.1e}, sent {sent}")
        if not difference < 1e-5 or sent != predicted:
            sys.exit(f"losses {losses}, not {want}; predicted were {predicted}")
