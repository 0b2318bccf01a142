"""Rows of data are samples for any batch dimension of an input; an input without the batch is read whole; one without
readers may be omitted.  Labels of a flattened output, [n*T,.] or, "minor", [T*n,.], are T for each row.

The model is y = tanh(x w + m) v, of a batch n of sequences of T, with T = n so that lengths reveal nothing.  In PyTorch's
default layout x and y are [T,n,.] and m is an input [T,1,.]; in the reference they are [n,T,.] and m is a frozen weight.
Merged, the last product is of [T*n,4], as in nn.MultiheadAttention: its rows stay independent.
"""

import pathlib

import onnx_bytes
from common import NNAOT, check, compile_in_a_hurry, finish, read_log, run, scratch, worst_difference, write_npy
from onnx_bytes import field, node, tensor, value_info

T, ROWS, INT64 = 4, 18, 7
M = [0.3 * (i % 5 - 2) for i in range(T * 4)]
CUTS = [[], ["--micro-batches", 2], ["-g", 2, "--plan", "dp"], ["-g", 2, "--plan", "dp", "--micro-batches", 2],
        ["-g", 2, "--plan", "tp"], ["-g", 2, "--plan", "zero3"], ["-g", 2, "--plan", "pp", "--micro-batches", 2],
        ["-g", 2, "--plan", "pp_chimera", "--micro-batches", 2], ["-g", 2, "--plan", "auto"],
        ["-g", 2, "--plan", "dp", "--dtype", "bf16"], ["-g", 2, "--plan", "dp", "--dtype", "f16"]]


def model(second, unread=(), flat=False, merged=False):
    rows = [T, "n"] if second else ["n", T]
    out = "z" if flat or merged else "y"
    last = field(1, node("MatMul", ["u" if merged else "t", "v"], [out], "out"))
    if merged:
        last = (field(1, node("Reshape", ["t", "rows_of_4"], ["u"], "merge")) + last + field(1, node("Reshape", ["z", "y_shape"], ["y"], "part"))
                + field(5, tensor("rows_of_4", [2], [-1, 4], INT64)) + field(5, tensor("y_shape", [3], [T, -1, 2], INT64)))
    graph = (field(1, node("MatMul", ["x", "w"], ["h"], "in")) + field(1, node("Add", ["h", "m"], ["a"], "add"))
             + field(1, node("Tanh", ["a"], ["t"], "tanh")) + last
             + (field(1, node("Flatten", [out], ["y"], "flatten", axis=2)) if flat else b"")
             + field(2, "rows") + field(5, tensor("w", [3, 4], [0.1 * (i - 5) for i in range(12)]))
             + field(5, tensor("v", [4, 2], [0.2 * (i - 3) for i in range(8)])) + field(11, value_info("x", rows + [3]))
             + (field(11, value_info("m", [T, 1, 4])) if second else field(5, tensor("m", [T, 4], M)))
             + b"".join(field(11, value_info(name, dims, INT64)) for name, dims in unread)
             + field(12, value_info("y", ["rows", 2] if flat else rows + [2])))
    return onnx_bytes.model(graph)


def numbers(folder, name, cut, target="t"):
    second = name in ("second", "merged", "minor")
    path, exe, log = folder / f"{name}.onnx", folder / name, folder / f"{name}.jsonl"
    path.write_bytes(model(second, flat=name in ("flat", "minor"), merged=name == "merged"))
    log.unlink(missing_ok=True)
    run(NNAOT, path, "--batch", 4, "--loss", "mse(y)", "--optimizer", "adamw", "--lr", 0.05, *cut,
        *(["--batch-dim", "n"] if second else ["--freeze", "m"]), "-o", exe)
    files = [f"x={folder}/x.npy", f"target={folder}/{target}.npy"] + ([f"m={folder}/m.npy"] if second else [])
    run(exe, *(f for file in files for f in ("--input", file)), *(f for file in files for f in ("--eval-input", file)), "--shuffle", 1,
        "--steps", 7, "--eval-every", 7, "--log", log)
    lines = read_log(log)
    return [line["loss"] for line in lines] + [lines[-1]["eval_loss"]]


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        write_npy(folder / "x.npy", [0.1 * (i * 7 % 31 - 15) for i in range(ROWS * T * 3)], (ROWS, T, 3))
        write_npy(folder / "t.npy", [0.1 * (i * 5 % 19 - 9) for i in range(ROWS * T * 2)], (ROWS, T, 2))
        write_npy(folder / "t_flat.npy", [0.1 * (i * 5 % 19 - 9) for i in range(ROWS * T * 2)], (ROWS * T, 2))
        write_npy(folder / "m.npy", M, (T, 1, 4))
        for cut in CUTS:
            want, bound = numbers(folder, "first", cut), 2e-2 if "--dtype" in cut else 2e-6
            for name, target in (("second", "t"), ("merged", "t"), ("flat", "t"), ("flat", "t_flat"), ("minor", "t"),
                                 ("minor", "t_flat")):
                got = numbers(folder, name, cut, target)
                check(f"{name}, {target} {cut}", worst_difference(got, want) < bound, got, want)
        # The table is one tensor, not rows of several.
        write_npy(folder / "m8.npy", M + M, (2 * T, 1, 4))
        said = run(folder / "second", "--input", f"x={folder}/x.npy", "--input", f"target={folder}/t.npy", "--input",
                   f"m={folder}/m8.npy", ok=1)
        check("a table of another length", "m8.npy: the input is f32[4,1,4], the file f32[8,1,4]" in said, said)
        # Labels that are not T for each row.
        write_npy(folder / "t_odd.npy", [0.0] * (2 * (T + 1)), (T + 1, 2))
        said = run(folder / "flat", "--input", f"x={folder}/x.npy", "--input", f"target={folder}/t_odd.npy", ok=1)
        check("labels that do not fit", f"the file f32[{T + 1},2]; a row of data has {T} of its first dimension: [rows*{T}]" in said,
              said)
        (folder / "unread.onnx").write_bytes(model(False, [("aux", ["n", 2]), ("table", [2, 3])]))
        run(NNAOT, folder / "unread.onnx", "--batch", 4, "--loss", "mse(y)", "-g", 2, "--plan", "dp", "-o", folder / "unread")
        run(folder / "unread", "--input", f"x={folder}/x.npy", "--input", f"target={folder}/t.npy", "--steps", 2)
        # A table cannot be a stream of tokens.
        write_npy(folder / "tokens.npy", list(range(24)), (24,), "<i8")
        said = run(folder / "unread", "--input", f"x={folder}/x.npy", "--input", f"target={folder}/t.npy", "--tokens",
                   f"table={folder}/tokens.npy", ok=1)
        check("tokens for a table", "tokens are for an input of integers, [rows,length]; 'table' is i64[2,3]" in said, said)
    finish()


main()
