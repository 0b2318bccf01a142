"""Routed experts that drop rows beyond their capacity, and slots that are too few.

    capacity   M6, small (tests/bench/paper_models.py): tokens beyond an expert's capacity have no slot, and add nothing.  Losses
               and weights of ep, dp=2,ep=2 and pp=2,ep=2 are one rank's, in f32; losses in bf16 and f16, within their precision
    balance    a loss that balances the experts is of the tokens of all ranks: it is a product of two means, and a mean of
               ranks' own products would be another.  Micro-batches, which would have their own, are refused
    too few    slots for the mean number of rows only: a run that needs more ends with a message, in place of losing rows
    files      weights that --save and --export write, and a plan read back, with rows dropped and without
    precision  the router computes in f32: in bf16 losses of dp are one rank's to rounding errors, and those of ep are as near to
               losses in f32 as one rank's
"""

import json
import pathlib
import random
import sys

from common import NNAOT, ROOT, check, compile_in_a_hurry, finish, read_log, run, scratch, worst_difference, write_npy
from plans import read_weights, weights_difference

sys.path.insert(0, str(ROOT / "tests" / "bench"))
import paper_models  # noqa: E402

STEPS, ROWS, TOKENS, WORDS, EXPERTS = 6, 16, 12, 64, 8


def compile_for(folder, model, loss, plan, ranks, *extra, ok=0):
    return run(NNAOT, model, "-g", ranks, "--plan", plan, "--loss", loss, "--optimizer", "adamw", "--lr", 0.003, "--init",
               "random:3", *extra, "-o", folder / "run", "--summary", folder / "summary", ok=ok)


def train(folder, data, ok=0):
    (folder / "log").unlink(missing_ok=True)
    said = run(folder / "run", "--input", data, "--steps", STEPS, "--log", folder / "log", ok=ok)
    return said if ok else [line["loss"] for line in read_log(folder / "log")]


def capacity(folder):
    paper_models.M6_TOKENS, paper_models.M6_WORDS, paper_models.ROWS_OF_GROUP = TOKENS, WORDS, 2
    text, loss = paper_models.m6(2, 16, 4, ROWS, EXPERTS, 24)
    check("rows are dropped", " capacity=4 drop=true" in text)  # of 24 tokens for 8 experts: the mean is 3
    model, data = folder / "m6.nn", folder / "tokens.npy"
    model.write_text(text)
    draw = random.Random(5)
    write_npy(data, [draw.randrange(WORDS) for _ in range(4 * ROWS * TOKENS)], (4 * ROWS, TOKENS), "<i8")
    files(folder, model, loss, f"tokens={data}")
    for dtype, limit in ("f32", 1e-5), ("bf16", 0.01), ("f16", 0.01):
        compile_for(folder, model, loss, "dp", 1, "--dtype", dtype)
        want = train(folder, f"tokens={data}")
        for plan in "ep", "dp=2,ep=2", "pp=2,ep=2":
            compile_for(folder, model, loss, plan, 4, "--dtype", dtype)
            sent = json.loads((folder / "summary").read_text())["comm_bytes"]
            got = worst_difference(train(folder, f"tokens={data}"), want)
            check(f"losses of {plan} in {dtype}", got < limit, got)
            check(f"{plan} exchanges rows", sent["all_to_all"] > 0, sent)


def files(folder, model, loss, data, *extra):
    """Weights of ep=4 in files are one rank's, in the model's shapes; a plan that nnaot writes is the same plan."""
    saved = {}
    for plan, ranks in ("dp", 1), ("ep", 4):
        compile_for(folder, model, loss, plan, ranks, *extra)
        saved[plan] = to = [folder / f"{plan}.safetensors", folder / f"{plan}.onnx"]
        export = ["--export", to[1]] if model.suffix == ".onnx" else []
        run(folder / "run", "--input", data, "--steps", STEPS, "--save", to[0], *export)
    got, want = (read_weights(saved[plan][0]) for plan in ("ep", "dp"))
    check(f"weights of {model.name} in a file", weights_difference(got, want) < 1e-5, weights_difference(got, want))
    if model.suffix == ".onnx":
        values = got["experts.1.down"][1]
        check("the exported model has them", values.tobytes() in saved["ep"][1].read_bytes())
    hashes, text = [], folder / "mine.lua"
    compile_plan(folder, model, loss, "ep", text, extra)
    check("the plan in a file has slots", "dispatch_experts(" in text.read_text() or "expert_slots" in model.read_text("latin-1"))
    for plan in "ep", text:
        compile_plan(folder, model, loss, plan, folder / "plan.json", extra)
        hashes.append(json.loads((folder / "plan.json").read_text())["plan_hash"])
    check(f"a plan of {model.name} read back", hashes[0] == hashes[1])


def compile_plan(folder, model, loss, plan, out, extra):
    run(NNAOT, model, "-g", 4, "--plan", plan, "--loss", loss, "--optimizer", "adamw", "--init", "random:3", *extra,
        "--emit", "plan", "-o", out)


def precision(folder):
    model, loss, data = ROOT / "tests/e2e/models/routed.onnx", "next_token(logits,input_ids)", folder / "ids.npy"
    draw = random.Random(7)
    write_npy(data, [draw.randrange(WORDS) for _ in range(8 * 16)], (8, 16), "<i8")
    files(folder, model, loss, f"input_ids={data}", "--batch", 8)
    losses = {}
    for plan, ranks, dtype in ("dp", 1, "f32"), ("dp", 1, "bf16"), ("dp", 4, "bf16"), ("ep", 4, "bf16"):
        compile_for(folder, model, loss, plan, ranks, "--batch", 8, "--dtype", dtype)
        losses[plan, ranks, dtype] = train(folder, f"input_ids={data}")
    exact, one, dp, ep = losses.values()
    check("losses of dp in bf16 are one rank's", worst_difference(dp, one) < 1e-5, worst_difference(dp, one))
    near, far = worst_difference(ep, exact), worst_difference(one, exact)
    check("losses of ep in bf16 are as near to f32 as one rank's", near < 1.5 * far, (near, far))


BALANCED = """module "balanced" phase=typed

graph @main entry (%x: f32[16,4,6] input "x", %r: f32[6,8] weight "r" train = normal(0,1),
                   %w1: f32[8,6,10] weight "w1" train = normal(0,1), %w2: f32[8,10,6] weight "w2" train = normal(0,1)) {
  %t = reshape %x shape=[64,6]
  %s = linear %t, %r
  %p = softmax %s axis=1
  %k = top_k %p k=2
  %g = gather %p, %k axis=1 batch=1
  %e = reshape %k shape=[128]
  %t1 = reshape %t shape=[64,1,6]
  %t2 = broadcast %t1 shape=[64,2,6]
  %rows = reshape %t2 shape=[128,6]
  %h = grouped_linear %w1, %rows, %e
  %a = gelu %h
  %o = grouped_linear %w2, %a, %e
  %o2 = reshape %o shape=[64,2,6]
  %g1 = reshape %g shape=[64,2,1]
  %g2 = broadcast %g1 shape=[64,2,6]
  %og = mul %o2, %g2
  %sum = reduce_sum %og axes=[1]
  %y = reshape %sum shape=[16,4,6]
  %all = constant value=[0,1,2,3,4,5,6,7] shape=[8] to=i64
  %all2 = broadcast %all shape=[128,8]
  %e1 = reshape %e shape=[128,1]
  %e2 = broadcast %e1 shape=[128,8]
  %same = equal %e2, %all2
  %one = cast %same to=f32
  %many = reduce_sum %one axes=[0]
  %mass = reduce_sum %p axes=[0]
  %both = mul %many, %mass
  %total = reduce_sum %both axes=[0]
  %balance = scale %total by=0.0009765625
  return output "y" %y, output "balance" %balance
}
"""


def balance(folder):
    model, draw = folder / "balanced.nn", random.Random(9)
    model.write_text(BALANCED)
    for name in "x", "target":
        write_npy(folder / f"{name}.npy", [draw.uniform(-1, 1) for _ in range(32 * 24)], (32, 4, 6))
    data = ["--input", f"x={folder}/x.npy", "--input", f"target={folder}/target.npy"]

    def losses(plan, ranks):
        compile_for(folder, model, "mse(y) + 0.5*balance", plan, ranks)
        (folder / "log").unlink(missing_ok=True)
        run(folder / "run", *data, "--steps", STEPS, "--log", folder / "log")
        return [line["loss"] for line in read_log(folder / "log")]

    want = losses("dp", 1)
    for plan in "ep", "dp=2,ep=2":
        got = worst_difference(losses(plan, 4), want)
        check(f"losses of {plan} with a balancing loss", got < 1e-5, got)
    said = compile_for(folder, model, "mse(y) + 0.5*balance", "ep", 4, "--micro-batches", 2, ok=1)
    check("micro-batches are refused", "reduces over the batch, and every micro-batch reads the result" in said, said)


def too_few(folder):
    """The same rows for all samples: the experts that these prefer have more than the mean."""
    plan, data = folder / "few.lua", folder / "same.npy"
    source = (ROOT / "passes/planner/plans/ep.lua").read_text()
    plan.write_text(source.replace("local capacity = 0 ", "local capacity = 1 "))
    check("the plan is another", plan.read_text() != source)
    write_npy(data, [7] * (8 * 16), (8, 16), "<i8")
    model = ROOT / "tests/e2e/models/routed.onnx"
    compile_for(folder, model, "next_token(logits,input_ids)", plan, 4, "--batch", 8)
    said = train(folder, f"input_ids={data}", ok=1)
    check("a run that needs more slots", "more than 8 rows of group 0 go to part" in said and "expert_slots" in said, said)
    check("and its cure", "hint:" in said and "capacity" in said and "--plan ep:200" in said, said)
    check("no index of the data is blamed", "a capacity is exceeded: more than 8" in said and "index" not in said
          and "note:" not in said, said)
    compile_for(folder, model, "next_token(logits,input_ids)", "ep:100", 4, "--batch", 8)
    said = train(folder, f"input_ids={data}", ok=1)
    check("ep:100 is the mean", "more than 8 rows of group 0 go to part" in said, said)


if __name__ == "__main__":
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        capacity(folder)
        balance(folder)
        too_few(folder)
        precision(folder)
    finish()
