"""nanoGPT's recipe from end to end: decay on matrices alone, warmup and cosine, clipping, accumulation, evaluation over all
rows, shards of tokens.  50 losses and gradient norms equal PyTorch's under each plan.

recipe/make.py made the model, its data and PyTorch's numbers.
"""

import json
import pathlib

from common import NNAOT, check, compile_in_a_hurry, finish, read_log, run, scratch, worst_difference

HERE = pathlib.Path(__file__).resolve().parent / "recipe"
LIMIT = 1e-4


def main():
    want = json.loads((HERE / "expected.json").read_text())
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        for plan in [], ["-g", 4, "--plan", "zero2"], ["-g", 2, "--plan", "tp"]:
            exe, log = folder / "train", folder / "log.jsonl"
            log.unlink(missing_ok=True)
            run(NNAOT, HERE / "gpt.onnx", *plan, "--batch", 4, "--accumulate", 2, "--loss", "next_token(logits,ids)",
                "--optimizer", "adamw:weight_decay=0.1,betas=0.9/0.95", "--no-decay", "norms,biases", "--lr", 1e-2,
                "--lr-schedule", "cosine:warmup=10,min=1e-3", "--clip-norm", 0.8, "-o", exe)
            run(exe, "--tokens", f"ids={HERE}/train_*.bin", "--eval-tokens", f"ids={HERE}/held_out.bin", "--eval-every", 25,
                "--steps", 50, "--log", log)
            lines = read_log(log)
            d = {k: worst_difference([line[k] for line in lines if k in line], want[k]) for k in want}
            print(" ".join(map(str, plan)) or "1 rank", *(f"{k} {v:.1e}" for k, v in d.items()), flush=True)
            check(f"plan {plan}", max(d.values()) < LIMIT)
        check("it learns", want["eval_loss"][-1] < 0.9 * want["loss"][0])
    finish()


main()
