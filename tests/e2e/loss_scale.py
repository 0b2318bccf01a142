"""Training in f16: the loss scale decreases to a usable value, is resumed, and training ends if no scale helps.

A regression with far targets: the gradient of the logits is 2 (y - t) / 160, which times 65536 overflows
f16 until the scale has been halved a few times.

    loss_scale.py [TARGET]
"""

import json
import pathlib
import struct
import sys

from common import NNAOT, SAMPLES, compile_in_a_hurry, read_log, run, scratch


def write_npy(path, shape, values):
    header = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).encode()
    header += b" " * ((-len(header) - 11) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
                     + struct.pack(f"<{len(values)}f", *values))


def check(what, ok, seen=""):
    if not ok:
        sys.exit(f"{what}: {seen}")


def main(machine="cpu"):
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        exe, x = folder / "train", folder / "x.npy"
        run(NNAOT, SAMPLES / "mlp/mlp.onnx", "--batch", 16, "-g", 2, "--loss", "mse(logits)", "--dtype", "f16",
            "--optimizer", "sgd:momentum=0.9", "--lr", "0.1", "--clip-norm", 1, "--target", machine, "-o", exe)
        write_npy(x, (16, 64), [(i * 37 % 101) / 50 - 1 for i in range(16 * 64)])

        def train(target, steps, *extra, ok=0):
            t, log = folder / "t.npy", folder / "log.jsonl"
            write_npy(t, (16, 10), [target] * 160)
            inputs = ["--input", f"x={x}", "--input", f"target={t}"]
            said = run(exe, *inputs, "--steps", steps, "--log", log, *extra, ok=ok)
            lines = read_log(log)
            log.unlink()
            return lines, said

        # Every step reads the same rows, so the loss changes exactly if the weights do.
        lines, said = train(1e4, 12)
        skipped = [line["skipped"] for line in lines]
        n = skipped.index(False)
        check("some steps are skipped, the first ones", 3 <= n <= 10 and not any(skipped[n:]), skipped)
        for i, line in enumerate(lines[:n]):
            check("a skipped step halves the scale", line["loss_scale"] == 65536 / 2 ** (i + 1), line)
            check("a skipped step has no norm", line["grad_norm"] is None, line)
            check("a skipped step changes no weight", line["loss"] == lines[0]["loss"], line)
        check("the line of a step says it", "skipped, loss scale now 32768" in said, said)
        check("then the loss goes down", lines[n + 1]["loss"] < lines[n]["loss"], lines)
        check("and the norm is that of the true gradients", 10 < lines[n]["grad_norm"] < 1e6, lines[n])

        again, _ = train(1e4, 7, "--checkpoint-dir", folder / "c", "--checkpoint-every", 3)
        again += train(1e4, 12, "--resume", "--checkpoint-dir", folder / "c")[0]
        same = [[line[k] for k in ("step", "loss", "grad_norm", "loss_scale", "skipped")] for line in again]
        want = [[line[k] for k in ("step", "loss", "grad_norm", "loss_scale", "skipped")] for line in lines]
        check("resumed it is the same", same == want, again)

        lines, said = train(1e12, 100, ok=1)
        check("no scale helps: it ends", len(lines) == 31 and not lines[-1]["skipped"], (len(lines), lines[-1]))
        check("it says so", "the gradient's norm is" in said and "--dtype bf16" in said, said)
        # A NaN in the data must not be treated as overflow: no step is skipped.
        write_npy(x, (16, 64), [float("nan")] * (16 * 64))
        _, said = train(1e4, 14, "--resume", "--checkpoint-dir", folder / "c", ok=1)
        check("a NaN in the data", "the loss is not a number" in said and "look for it in the data" in said, said)
        check("skips no step", "skipped, loss scale" not in said, said)

        # A checkpoint can be resumed in another type: without a scale, or with the initial one.
        write_npy(x, (16, 64), [(i * 37 % 101) / 50 - 1 for i in range(16 * 64)])
        want = {}
        for dtype, other in ("f32", "f16"), ("f16", "f32"):
            for name in dtype, other:
                exe = folder / name
                if not exe.exists():
                    run(NNAOT, SAMPLES / "mlp/mlp.onnx", "--batch", 16, "--loss", "mse(logits)", "--dtype", name,
                        "--optimizer", "adamw", "--lr", "0.001", "--target", machine, "-o", exe)
            kept = folder / f"from-{dtype}"
            exe = folder / dtype
            want[dtype] = train(1.0, 8)[0]
            train(1.0, 4, "--checkpoint-dir", kept)
            exe = folder / other
            lines, said = train(1.0, 8, "--resume", "--checkpoint-dir", kept)
            check(f"an {other} program says that its scale is new", ("scale starts from its initial value" in said) == (other == "f16"), said)
            d = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(lines, want["f32"][4:], strict=True))
            check(f"it goes on from {dtype} as it was", d < 1e-2, d)
        raw = (folder / "from-f32/step-000000000008.safetensors").read_bytes()
        size, = struct.unpack("<Q", raw[:8])
        begin = json.loads(raw[8:8 + size])["state/loss_scale.updates"]["data_offsets"][0]
        updates, = struct.unpack("<q", raw[8 + size + begin:16 + size + begin])
        check("and its optimizer counts on", updates == 8, updates)
        print(f"{n} steps skipped, then trained; resumed alike; given up after {len(lines)} steps")


main(*sys.argv[1:])
