"""Checks that named plans of a deep model stay within the memory of programs:  deep_models.py [PLAN …]

A program may take 64 MiB, and as much again in what it calls, plus the state of each op. A call for each op that takes something for
each op, too, ends there on models of many layers only: AlphaFold2's 12 layers, gone through three times, are about 3,000 ops.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import paper_models  # noqa: E402

NNAOT = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot")
PLANS = ["tp=8", "zero3=4,tp=2,recompute=1", "dp=4,dap=2", "pp_3f1b=2,dp=2,tp=2", "coshard:2@1-8=8,recompute=1"]


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder, "evoformer.nn")
        text, loss = paper_models.evoformer(12, 256, 8, 32)
        model.write_text(text)
        for plan in sys.argv[1:] or PLANS:
            run = subprocess.run([NNAOT, model, "-g", "8", "--plan", plan, "--micro-batches", "4", "--loss", loss, "--dtype", "f16",
                                  "--target", "cuda:sm_90", "--emit", "plan", "-o", os.devnull], capture_output=True, text=True)
            if run.returncode:
                print(f"{plan}: {run.stderr}")
            failed += run.returncode != 0
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
