"""--check-values names the operation, its node, the rank and the operands of the first NaN; it does not change
a run without one.
"""

import pathlib

from common import NNAOT, check, compile_in_a_hurry, compile_sample, finish, run, scratch, train, write_npy

MODEL = """module phase=typed

graph @main entry (%x: f32[4,3] input "x", %w: f32[3] weight "w" train = 1) {
  %b = broadcast %w shape=[4,3]  # m.onnx:/Expand
  %p = mul %x, %b                # m.onnx:/Mul
  %s = FUNCTION %p               # m.onnx:/Function
  %y = reduce_sum %s axes=[1]    # m.onnx:/Sum
  return output "y" %y
}
"""


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        # Row 6 of the data is negative; the second of 2 ranks reads it, in step 2.
        rows = [1.0 + i for i in range(24)]
        rows[18:21] = [-1.0, -2.0, -3.0]
        write_npy(folder / "x.npy", rows, (8, 3))
        write_npy(folder / "target.npy", [0.0] * 8, (8,))

        def said(function, *cut, flags=("--check-values",)):
            (folder / "m.nn").write_text(MODEL.replace("FUNCTION", function))
            run(NNAOT, folder / "m.nn", "--loss", "mse(y)", *cut, "-o", folder / "m")
            return run(folder / "m", "--input", f"x={folder}/x.npy", "--input", f"target={folder}/target.npy", "--lr", "1e-9",
                       "--steps", 3, *flags, ok=1)

        for cut, prefix in ([], ""), (["-g", 2, "--plan", "dp"], "rank 1, "), (["--micro-batches", 2], ""):
            text = said("log", *cut)
            check(f"log of what is negative {cut}", f"error: {prefix}step 2: " in text and "m.onnx:/" in text and
                  "not a number: " in text and "operand 1: " in text and "from -3 to " in text, text)
        text = said("log", flags=())
        check("without the flag it is offered", "step 2: the loss is not a number" in text and
              "--check-values names the operation" in text, text)
        rows[18] = 0.0
        write_npy(folder / "x.npy", [abs(x) for x in rows], (8, 3))
        text = said("log")
        check("infinite values are said", "infinite values arose first in " in text and "m.onnx:/" in text, text)

        # An infinity that reaches the loss is reported once, by its first rank, before the error.
        rows[0] = 100.0
        write_npy(folder / "x.npy", [abs(x) for x in rows], (8, 3))
        for cut, rank in ([], ""), (["-g", 2, "--plan", "dp"], "on rank 0 "):
            text = said("exp", *cut)
            note, error = text.find(f"note: infinite values arose first {rank}in "), text.find("error: ")
            check(f"infinite values are said once {cut}", text.count("infinite values arose") == 1 and 0 <= note < error, text)

        for extra in [], ["-g", 2, "--plan", "pp", "--micro-batches", 2, "--dtype", "bf16"]:
            compile_sample("gpt2", folder / "gpt2", extra=extra)
            plain = train(folder / "gpt2", "gpt2", 2, folder / "plain.jsonl")
            looked = train(folder / "gpt2", "gpt2", 2, folder / "looked.jsonl", ["--check-values"])
            check("a run without such values is the same", [l["loss"] for l in plain] == [l["loss"] for l in looked], plain, looked)
    finish()


main()
