"""Splitting the batch changes nothing: accumulation and micro-batches give the whole batch's losses, in bf16 approximately.

The resnet's BatchNormalization couples the rows of a batch: there it is an error that names the op.
"""

import pathlib
import sys

from common import NNAOT, SAMPLES, compile_in_a_hurry, compile_sample, run, scratch, train, worst_difference


def main():
    with scratch() as folder:
        compile_in_a_hurry(folder)

        def losses(name, exe_name, extra):
            exe = pathlib.Path(folder, exe_name)
            compile_sample(name, exe, ranks=1, extra=extra)
            return [line["loss"] for line in train(exe, name, 8, f"{exe}.jsonl")]

        failed = False
        for name, batch in ("mlp", 16), ("gpt2", 4):
            whole = losses(name, f"{name}-whole", [])
            for label, extra, limit in (
                ("micro-batches 2", ["--micro-batches", 2], 1e-5),
                ("accumulate 2", ["--batch", batch // 2, "--accumulate", 2], 1e-5),
                ("both, 2 ranks", ["--batch", batch // 2, "--accumulate", 2, "-g", 2], 1e-5),
                ("bf16", ["--micro-batches", 2, "--dtype", "bf16"], 1e-2)):  # casts run once a step
                got = losses(name, f"{name}-{label.replace(' ', '')}", extra)
                d = worst_difference(got, whole)
                print(f"{name} {label}: {d:.1e}", flush=True)
                failed |= not d < limit
        out = pathlib.Path(folder, "none")
        said = run(NNAOT, SAMPLES / "resnet/resnet.onnx", "--batch", 16, "--loss", "cross_entropy(logits)",
                   "--micro-batches", 2, "-o", out, ok=1)
        if "BatchNormalization" not in said or "resnet.onnx:" not in said or out.exists():
            print("the resnet's error does not name its BatchNormalization, or left something:", said)
            failed = True
    return failed


sys.exit(main())
