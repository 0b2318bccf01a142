"""check_accumulated.py NNAOT NNAOT_PLAN MODEL FOLDER: --accumulate of `nnaot-plan blocks --stages` makes a step longer as it does
the built plan's, and as the same number of micro-batches of one batch does."""

import json
import pathlib
import re
import subprocess
import sys

nnaot, nnaot_plan, model, folder = sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
folder.mkdir(exist_ok=True)
STEP = [model, "--loss", "next_token(logits,input_ids)", "--optimizer", "adamw"]


def dealt(batch, micro_batches, accumulate):
    run = subprocess.run([nnaot_plan, "blocks", *STEP, "-g", "4", "--plan", "dp", "--stages", "2", "--batch", str(batch),
                          "--micro-batches", str(micro_batches), "--accumulate", str(accumulate)], check=True, capture_output=True,
                         text=True)
    return float(re.search(r"in stages (\S+) ms", run.stdout)[1])


def built(batch, micro_batches, accumulate):
    summary = folder / "s.json"
    subprocess.run([nnaot, *STEP, "-g", "8", "--plan", "pp=2,dp=4", "--batch", str(batch), "--micro-batches", str(micro_batches),
                    "--accumulate", str(accumulate), "--emit", "plan", "-o", "/dev/null", "--summary", summary], check=True,
                   stderr=subprocess.DEVNULL)
    return json.loads(summary.read_text())["predicted_step_ms"]


assert dealt(16, 4, 3) == dealt(48, 12, 1), (dealt(16, 4, 3), dealt(48, 12, 1))
for batch, micro_batches, accumulate in [(16, 4, 1), (16, 4, 3), (16, 1, 2)]:
    said, is_ = dealt(batch, micro_batches, accumulate), built(batch, micro_batches, accumulate)
    assert 0.9 * is_ < said < 1.1 * is_, (batch, micro_batches, accumulate, said, is_)
    print(said, is_)
print("equal")
