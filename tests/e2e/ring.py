"""Context parallelism moves the bytes of its formula (docs/long_sequences.md), causal and not, on 2, 4 and 8 ranks.

The bytes are those of nnaot's summary, which plans.py compares with the traffic that is counted.  The models have 2 layers, 8 heads
of 2 columns and 16 tokens; losses and weights are compared by plans.py.  The work of fuse, which looks for cycles
among the kernels, grows with layers and rounds, and not with their squares.
"""

import json
import pathlib
import re
import sys

import common
import plan_cases

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import paper_models  # noqa: E402

LAYERS, ROWS, TOKENS, HEADS, SIZE, WIDE = 2, 8, 16, 8, 2, 4


def moved(ranks, causal, element):
    """Returns the bytes that all ranks together send in moves."""
    x = ROWS * TOKENS * HEADS * SIZE  # elements of any of q, k, v and y, as keys have as many heads
    rounds = 2 * (ranks - 1) * 2 * x * element + ranks * 2 * x * WIDE
    pieces = [i // 2 != min(i, 2 * ranks - 1 - i) for i in range(2 * ranks)]  # those that change their rank
    exchanges = (5 + 4) * x * element * sum(pieces) / len(pieces)
    return LAYERS * (rounds + (exchanges if causal else 0))


def summary(folder, model, plan, ranks, *more):
    case = plan_cases.MODELS[model]
    out = folder / "summary.json"
    common.run(common.NNAOT, plan_cases.HERE / f"{model}.onnx", "-g", ranks, "--batch", ROWS, "--loss", case["loss"], "--plan",
               plan, *more, "--emit", "plan", "-o", folder / "plan.lua", "--summary", out)
    return json.loads(out.read_text())


def check_all(folder):
    for ranks in 2, 4, 8:
        for model, causal in ("gpt", True), ("bert", False):
            is_ = summary(folder, model, "cp", ranks)["comm_bytes"]
            want = moved(ranks, causal, 4)
            common.check(f"{model} on {ranks} ranks moves {want:.0f} bytes", is_["move"] == want, is_)
            # q, k, v, y and their gradients, counted with the part that a rank keeps.
            is_ = summary(folder, model, "cp_a2a", ranks)["comm_bytes"]
            want = LAYERS * 8 * ROWS * TOKENS * HEADS * SIZE * WIDE
            common.check(f"{model} on {ranks} ranks exchanges {want:.0f} bytes", is_["all_to_all"] == want, is_)
            common.check("and moves none", is_["move"] == 0, is_)
    # 16 bits: gradients of keys and values travel in f32.
    for dtype in "bf16", "f16":
        is_ = summary(folder, "bert", "cp", 4, "--dtype", dtype)["comm_bytes"]
        common.check(f"in {dtype} half of the other bytes", is_["move"] == moved(4, False, 2), is_, moved(4, False, 2))


def walked(folder, layers, ranks):
    """Returns the ops that fuse meets in search of cycles."""
    text, loss = paper_models.llama(layers, 64, 4, 1, groups=4, inner=64, words=64, tokens=256)
    (folder / "llama.nn").write_text(text)
    said = common.run(common.NNAOT, folder / "llama.nn", "-g", ranks, "--loss", loss, "--plan", "cp", "--dtype", "bf16", "--target",
                      "cuda:sm_90", "--emit", "plan", "-o", folder / "plan.lua", "--stats")
    return int(re.search(r"fuse: (\d+) ops met", said)[1])


def check_work(folder):
    few, layers, rounds = walked(folder, 2, 4), walked(folder, 8, 4), walked(folder, 2, 16)
    common.check(f"4 times the layers: {few}, {layers} ops met", layers < 5 * few)
    common.check(f"4 times the rounds: {few}, {rounds} ops met", rounds < 8 * few)


def main():
    with common.scratch() as folder:
        check_all(pathlib.Path(folder))
        check_work(pathlib.Path(folder))
    common.finish()


if __name__ == "__main__":
    main()
