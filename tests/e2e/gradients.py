"""The first gradient of every weight of every sample equals PyTorch's double-precision gradient.

Through nnaot-eval, with the references and with the runtime's kernels: the norm of each gradient and
its projection on cos(1), cos(2), cos(3) …; the difference, relative to the norm, stays below 1e-5.
"""

import array
import json
import math
import pathlib
import struct
import sys

from common import BUILD, SAMPLE, SAMPLES, data_flags, run, scratch

LIMIT = 1e-5


def first_rows(path, rows, out, width=None):
    """Writes the first `rows` rows of an .npy as a file of its own; `width` elements a row for a token stream."""
    data = pathlib.Path(path).read_bytes()
    start = 10 + struct.unpack("<H", data[8:10])[0]
    header = eval(data[10:start])  # our own files
    values = array.array({"<f4": "f", "<i8": "q", "<u2": "H"}[header["descr"]], data[start:])
    if width:
        values, header["descr"], header["shape"] = array.array("q", values[: rows * width]), "<i8", (rows, width)
    else:
        per_row = math.prod(header["shape"][1:])
        values, header["shape"] = values[: rows * per_row], (rows, *header["shape"][1:])
    text = repr(header).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    out.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + values.tobytes())
    return out


def read_floats(path):
    data = path.read_bytes()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])


def main():
    failed = False
    for name, s in SAMPLE.items():
        expected = json.loads((SAMPLES / name / "expected.json").read_text())["gradients"]
        with scratch() as folder:
            folder = pathlib.Path(folder)
            inputs, flags = [], data_flags(name)
            for spec in flags[1::2]:
                key, path = spec.split("=")
                small = first_rows(path, s["batch"], folder / f"{key}.npy", 64 if name == "gpt2" else None)
                inputs += ["--input", f"{key}={small}"]
            outputs = {key: folder / f"g{i}.npy" for i, key in enumerate(expected)}
            for kernels in "reference", "cpu":
                run(BUILD / "bin/nnaot-eval", SAMPLES / name / f"{name}.onnx", "--batch", s["batch"],
                    f"--passes=simplify,raise,simplify,loss(spec=\"{s['loss']}\"),autodiff,simplify", "--kernels",
                    kernels, *inputs, *(f for k, p in outputs.items() for f in ("--output", f"grad:{k}={p}")))
                worst, where = 0.0, ""
                for key, (norm, projection) in expected.items():
                    g = read_floats(outputs[key])
                    dot = math.fsum(x * math.cos(i + 1) for i, x in enumerate(g))
                    d = max(abs(math.sqrt(math.fsum(x * x for x in g)) - norm), abs(dot - projection)) / max(norm, 1e-9)
                    if not d <= worst:
                        worst, where = d, key
                print(f"{name:8} {kernels:10} {len(expected):3} gradients, largest difference {worst:.1e} {where}",
                      flush=True)
                failed |= not worst < LIMIT
    return failed


sys.exit(main())
