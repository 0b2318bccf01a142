"""Published bug classes of distributed training, each as a fault in the program of a real plan, which nnaot must refuse:

    bug_classes.py [REGEX]      the rows whose class matches

A row of CLASSES names the plan, the pass after which the fault is made, the edit, and words of the message.  The programs are
dumps that nnaot writes here; `nnaot-opt FAULTY --passes= --prove=MODEL` reads, verifies and proves each.  The unchanged
programs must be accepted.

Sources of the classes, by number of the issue: Megatron-LM 443, 673, 906, 299, 1256, 1446, 3959, 5047, 5916, 6500, 7227, 7452;
TransformerEngine 435, 1272; gpt-neox 1259; torchtitan 596, 2416; PyTorch 160285, 190758; transformers 34191, 34242, 48205;
NeMo Automodel 1260, 1412, 2995, 3359; NeMo-RL 3788; prime-rl 1957; DeepSpeed 1252, 7839, 8475; OLMo-core 828; picotron 5;
FunASR 3472; PaddleFleetX 1005; and TrainCheck (Jiang et al., OSDI 2025).
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/plan"))

from plan_text import Program

BIN = pathlib.Path(os.environ.get("BUILD", ROOT / "build"), "bin")
MODELS = "tests/e2e/models"
NEXT, CLASSES_LOSS, MASKED = "next_token(logits,input_ids)", "cross_entropy(logits)", "cross_entropy(logits,ignore_index=-100)"
CLIP = ["--clip-norm", "0.5"]
TWO = ["--micro-batches", "2"]
PLANS = {  # model, ranks, loss, plan, flags
    "sp": ("gpt", 2, NEXT, "sp", CLIP),
    "tp": ("gpt", 4, NEXT, "dp=2,tp=2", [*CLIP, "--accumulate", "2", "--optimizer", "adamw"]),
    "dp": ("gpt_tied", 2, NEXT, "dp", CLIP),
    "vp": ("bert", 4, MASKED, "dp=2,vp=2", [*CLIP, *TWO]),
    "ep": ("moe", 2, NEXT, "ep", CLIP),
    "zero2": ("wide", 2, CLASSES_LOSS, "zero2", [*TWO, "--optimizer", "adamw"]),
    "recompute": ("gpt", 2, NEXT, "recompute", CLIP),
    "pp": ("gpt", 2, NEXT, "pp", TWO),
    "f16": ("wide", 2, CLASSES_LOSS, "dp", ["--dtype", "f16"]),
    "norm": (None, 2, CLASSES_LOSS, "dp", []),  # samples/resnet, in training mode
}


# -- Places in a program -----------------------------------------------------------------------------------------------

def ops(p, kind, mark="", part=None):
    """Returns the ops of a kind in @train and its bodies whose line has `mark`, with their graphs."""
    g = p.entries()[0]
    return [(h, op) for h in [g, *p.bodies(g)] for op in h.ops if op.kind == kind and mark in str(op) and part in (None, op.part)]


def first(p, kind, mark="", part=None):
    found = ops(p, kind, mark, part)
    if not found:
        raise LookupError(f"no {kind} with {mark!r}")
    return found[0]


def update(p, weight):
    """Returns the op that updates a weight."""
    g = p.entries()[0]
    return next(op for op in g.ops if op.kind in ("sgd", "adam") and op.ins[0] == f"%{weight}")


def gradient(p, weight):
    """Returns the op that computes or reduces the gradient that a weight's update reads."""
    g = p.entries()[0]
    op = g.producer(update(p, weight).ins[1])
    while op.kind in ("scale", "cast", "mul", "reshape"):
        op = g.producer(op.ins[0])
    return op


def drop(h, op, by=0):
    h.replace(op.out[0], op.ins[by])
    h.ops.remove(op)


def copied(h, op, kind, attrs):
    """Puts an op of one operand after another, for all its readers."""
    line = f"  {h.new_name()} = {kind} {op.out[0]} {attrs} : {op.types[0]}" + "".join(
        f" {word}" for word in op.words if not word.startswith(("split=", "of=")))
    new = Program(f"graph @g () {{\n{line}\n}}\n").graphs[0].ops[0]
    h.replace(op.out[0], new.out[0])
    h.ops.insert(h.ops.index(op) + 1, new)
    return new


# -- Edits -------------------------------------------------------------------------------------------------------------

def not_reduced(weight):
    return lambda p: drop(p.entries()[0], gradient(p, weight))


def not_reduced_for_the_optimizer(weight):
    def edit(p):
        update(p, weight).ins[1] = gradient(p, weight).ins[0]
    return edit


def one_gradient_of_two(p):
    h, op = first(p, "add", "wte", "backward")
    drop(h, op)


def norm_without(mark):
    """The norm leaves out a term: of the adds of squares, one passes on its other operand."""
    def edit(p):
        g = p.entries()[0]
        part = first(p, "sum_squares", mark)[1].out[0]
        while True:
            user = next(op for op, i in g.readers(part) if i is not None)
            if user.kind == "add":
                break
            part = user.out[0]
        drop(g, user, by=1 - user.ins.index(part))
    return edit


def replicated_per_rank(p):
    """The sum over ranks has a norm that each rank computes of a whole weight."""
    reduce = ops(p, "all_reduce", "? <- all_reduce ? <- update ?")[-1][1]
    reduce.ins[0] = first(p, "sum_squares", "h.0.ln_1.weight")[1].out[0]


def norm_term(mark, of):
    def edit(p):
        first(p, "sum_squares", mark)[1].ins[0] = of(p)
    return edit


def drop_first(kind, mark="", part=None):
    return lambda p: drop(*first(p, kind, mark, part))


def attr(kind, name, value, mark="", part=None):
    def edit(p):
        op = first(p, kind, mark, part)[1]
        old = op.attrs.get(name)
        op.attrs[name] = value(old) if callable(value) else value
        if op.attrs[name] is None:
            del op.attrs[name]
        assert op.attrs.get(name) != old
    return edit


def all_become(old, new):
    def edit(p):
        for _, op in ops(p, old):
            op.kind = new
    return edit


def twice(kind, mark, part=None):
    def edit(p):
        h, op = first(p, kind, mark, part)
        copied(h, op, op.kind, " ".join(f"{k}={v}" for k, v in op.attrs.items()))
    return edit


def added_to_itself(weight):
    def edit(p):
        g = p.entries()[0]
        op = gradient(p, weight)
        source = g.producer(op.ins[0])
        new = copied(g, source, "add", "")
        new.ins = [source.out[0]] * 2
        new.words.insert(0, "split=[+]")
    return edit


def scaled(weight, by):
    def edit(p):
        new = copied(p.entries()[0], gradient(p, weight), "scale", f"by={by}")
        assert new
    return edit


def exchanged_members(p):
    h, op = first(p, "pack", "update", "update")
    types = h.types()
    i, k = next((i, k) for i in range(len(op.ins)) for k in range(i) if types[op.ins[i]].same(types[op.ins[k]]))
    op.ins[i], op.ins[k] = op.ins[k], op.ins[i]


def exchanged_unpacks(p):
    found = [op for _, op in ops(p, "unpack") if op.part == "update"]
    a, b = next((a, b) for a in found for b in found if a is not b and a.ins == b.ins and a.types[0].same(b.types[0]))
    a.attrs["offset"], b.attrs["offset"] = b.attrs.get("offset", "0"), a.attrs.get("offset", "0")
    a.types[0].at, b.types[0].at = b.types[0].at, a.types[0].at


def weight_stays(weight):
    def edit(p):
        row = next(row for row in p.entries()[0].results if row.of == f"%{weight}")
        row.value = row.of
    return edit


def update_lost(weight):
    def edit(p):
        g = p.entries()[0]
        g.results = [row for row in g.results if row.of != f"%{weight}"]
    return edit


def another_gradient(weight, of):
    def edit(p):
        update(p, weight).ins[1] = update(p, of).ins[1]
    return edit


def without_clip_factor(p):
    """The optimizer of one weight gets a factor of 1."""
    g, op = p.entries()[0], update(p, "wpe.weight")
    i = 3 if op.kind == "sgd" else 5
    factor, old = g.producer(op.ins[i]), op.ins[i]
    one = copied(g, factor, "fill", "value=1 to=f32")
    new, one.ins = one.out[0], []
    g.replace(new, old)
    op.ins[i] = new


def member(p, weight):
    """Returns the member of a bucket that becomes a weight's gradient."""
    g, op = p.entries()[0], gradient(p, weight)
    pack = g.producer(g.producer(op.ins[0]).ins[0])
    unpacks = [o for _, o in ops(p, "unpack") if o.ins == op.ins]
    return pack.ins[sorted(unpacks, key=lambda o: int(o.attrs.get("offset", 0))).index(op)]


def optimizer_reads_member(weight):
    def edit(p):
        update(p, weight).ins[1] = member(p, weight)
    return edit


def norm_leaves_out(p):
    """One add of the fused norm passes on its first operand."""
    h, op = next((h, op) for h, op in ops(p, "add", "update") if not h.entry and len(h.ops) > 1)
    drop(h, op)


def label_count(p):
    """Returns the op that sums the number of labels over ranks."""
    return p.entries()[0].producer(first(p, "div")[1].ins[1])


def scattered_otherwise(p):
    """A gradient of 64 columns is sharded along them, and the optimizer's states along rows."""
    op = first(p, "reduce_scatter", "f32[32,64]")[1]
    axis = next(i for i, x in enumerate(op.types[0].layout) if x == "S(0)")
    op.attrs["dim"], op.types[0].type, op.types[0].layout[axis] = "1", "f32[64,32]", "S(1)"


def loss_is(of):
    def edit(p):
        next(row for row in p.entries()[0].results if row.of == '"loss"').value = of(p)
    return edit


def before_unpacked(p):
    """Returns the loss before it is reduced in a bucket."""
    g = p.entries()[0]
    return g.producer(g.producer(g.producer(next(row for row in g.results if row.of == '"loss"').value).ins[0]).ins[0]).ins[0]


def clip_is(op, by):
    """The op that computes the factor of clipping is another."""
    return lambda p: setattr(first(p, op, "? <- update ?")[1], "kind", by)


def stages_wait(p):
    """The first stage waits for its first gradient before its first forward."""
    g = p.entries()[0]
    i = next(i for i, run in enumerate(g.runs) if "F0" in run)
    head, devices, rest = g.runs[i].split(maxsplit=2)
    get = re.search(r"get %\d+", rest)[0]
    # The gets of neighbouring micro-batches are one entry.
    several = re.search(rf"\({get}\)\*(\d+)", rest)
    if several:
        n = int(several[1]) - 1
        rest = rest.replace(several[0], get if n == 1 else f"({get})*{n}", 1)
    else:
        rest = rest.replace(get + " ", "", 1)
    g.runs[i] = f"  {head} {devices} {get} {rest}"


def each_slice(p):
    for param in p.entries()[0].params:
        if param.role == "weight":
            param.rest = param.rest.replace(" train", " train each_slice", 1)


def each_slice_alone(p):
    """A step for every micro-batch, of that micro-batch's gradient alone."""
    each_slice(p)
    all_become("accumulate", "take_partial")(p)


def stage_reads_another(p):
    """A receiving stage's matrix product reads another transferred value of the same type."""
    g = p.entries()[0]
    types = g.types()
    moves = [op for op in g.ops if op.kind == "move"]
    a, b = next((a, b) for a in moves for b in g.ops if b.types and b is not a and g.ops.index(b) < g.ops.index(a) and
                types[a.ins[0]].same(b.types[0]) and b.out[0] != a.ins[0])
    a.ins[0] = b.out[0]


def router_gradient_lost(p):
    h, op = first(p, "add", "/h.1/mlp/gate", "backward")
    drop(h, op)


def bias_before_the_sum(p):
    """The bias of a row-parallel product is added to each rank's share, so that the sum has it once per rank."""
    g = p.entries()[0]
    reduce = next(op for op in g.ops if op.kind == "all_reduce" and "/h.0/attn/out" in op.comment)
    add = next(user for user, i in g.readers(reduce.out[0]) if i is not None and user.kind in ("add", "fused"))
    at = add.ins.index(reduce.out[0])
    g.replace(add.out[0], "%then")
    add.ins[at], reduce.out[0], reduce.ins[0] = reduce.ins[0], "%then", add.out[0]
    add.types[0].layout = list(g.types()[add.ins[at]].layout)
    if add.word("split"):
        add.set_word("split", add.word("split").replace("-", "+"))
    g.ops.remove(reduce)
    g.ops.insert(g.ops.index(add) + 1, reduce)


def positions_of_the_first_rank(p):
    param = next(param for param in p.entries()[0].params if param.label == '"wpe.weight"' and param.role == "weight")
    param.type.layout = ["B" if x == "S(0)" else x for x in param.type.layout]


def ids_of_the_first_rank(p):
    """Every rank has the tokens of the first part of the sequence: a slice without a rank."""
    op = first(p, "local_slice", "input_ids")[1]
    op.kind, op.attrs = "slice", {"starts": "[0,0]", "steps": "[1,1]", "shape": op.types[0].type[3:]}


IS_P = r"is P along '\w+', and must be B"
MODEL = r"in the model's program"
OF_ITS_OP = "has not the layout of its op's result"
READS = r"and its body '@fused_\d+' reads"
# Class, plan, pass, edit, words of the message.
Row = collections.namedtuple("Row", "what plan phase edit words")
CLASSES = [
    Row("the gradient of a norm's weight is not summed under sp", "sp", "comm", not_reduced("h.0.ln_1.weight"), IS_P),
    Row("the gradient of a norm's weight is not summed, for the optimizer alone", "sp", "comm",
        not_reduced_for_the_optimizer("h.0.ln_1.weight"), IS_P),
    Row("one of two gradients of a tied embedding", "dp", "comm", one_gradient_of_two, "before the last is added to it"),
    Row("the clip norm leaves a sharded weight out", "tp", "comm", norm_without("h.0.attn.q.weight"), MODEL),
    Row("the clip norm counts a tied weight twice", "dp", "comm",
        norm_term("wpe.weight", lambda p: update(p, "wte.weight").ins[1]), MODEL),
    Row("the clip norm has a rank's own shards", "sp", "comm", drop_first("all_reduce", "? <- all_reduce ? <- update ?"), IS_P),
    Row("the clip norm is taken before the reduction", "dp", "comm",
        norm_term("wpe.weight", lambda p: gradient(p, "wpe.weight").ins[0]), "sum_squares: operand 0 is P along 'dp'"),
    Row("a replicated weight is in the clip norm once per rank", "sp", "comm",
        replicated_per_rank,
        r"is B along 'sp', and must be P"),
    Row("a mean over the labels of one rank", "vp", "comm",
        lambda p: drop(p.entries()[0], label_count(p)), "div: operand 1 is P along 'dp', and must be B"),
    Row("a mean over the labels of one micro-batch", "vp", "comm",
        lambda p: drop(p.entries()[0], p.entries()[0].producer(label_count(p).ins[0])),
        "has not the layout of its collective's result"),
    Row("a mean over the labels of the last micro-batch", "vp", "comm",
        lambda p: setattr(p.entries()[0].producer(label_count(p).ins[0]), "kind", "take_partial"),
        "take_partial changes the value"),
    Row("the loss of one rank", "dp", "comm", drop_first("all_reduce", "? <- all_reduce ? <- loss"),
        "is a result, and a partial sum"),
    Row("the gradients of the last micro-batch", "zero2", "comm", all_become("accumulate", "take_partial"),
        "take_partial changes the value"),
    Row("a gradient is reduced twice", "dp", "comm", twice("all_reduce", "update", "update"), "is B along 'dp', and must be P"),
    Row("a gradient is added to itself", "dp", "comm", added_to_itself("wpe.weight"), MODEL),
    Row("a router's gradient is not summed over the experts", "ep", "comm", drop_first("all_reduce", "gradient", "backward"), IS_P),
    Row("a gradient is not reduced under dp", "dp", "comm", not_reduced("h.1.mlp.up.bias"), IS_P),
    Row("a gradient is divided by the number of ranks once more", "dp", "comm", scaled("wpe.weight", 0.5), MODEL),
    Row("the loss is divided by the number of micro-batches once more", "zero2", "comm",
        attr("fill", "value", lambda old: repr(float(old) / 2), "gradient", "backward"), "attribute 'value'"),
    Row("an all_reduce over the wrong group", "tp", "comm", attr("all_reduce", "axis", '"tp"', "update", "update"), "along 'tp'"),
    Row("a reduce_scatter along the wrong dimension", "zero2", "comm",
        scattered_otherwise, r"operand 0 is S\(1\) along .zero2., and must be S\(0\)"),
    Row("recomputation draws another dropout", "recompute", "comm",
        attr("dropout", "key", lambda old: str(int(old) + 1), "/h.0/attn/drop", "backward"), "attribute 'key'"),
    Row("all ranks draw the dropout of the first rank", "sp", "comm",
        lambda p: first(p, "dropout")[1].set_word("split", "[-]"), OF_ITS_OP),
    Row("every rank has the positions of the first one", "sp", "comm", positions_of_the_first_rank,
        "broadcast: operand 0 is B along 'sp', and must be S"),
    Row("every rank has the tokens of the first one", "sp", "comm", ids_of_the_first_rank, OF_ITS_OP),
    Row("causal attention is not causal", "tp", "comm", attr("attention", "causal", None), "attribute 'causal'"),
    Row("vocabulary: a rank's own log-sum-exp", "vp", "comm", drop_first("all_gather", "f32[2,16,2]"),
        r"lse_parts: operand 0 is S\(2\) along .vp., and must be B"),
    Row("vocabulary: the embedding is not summed", "vp", "comm", drop_first("all_reduce", "/Add", "forward"), IS_P),
    Row("a bias is added before the sum over ranks", "tp", "comm", bias_before_the_sum,
        "add: 1 of 2 operands are partial sums along tp"),
    Row("a router's gradient is lost", "ep", "comm", router_gradient_lost,
        "before the last is added to it: it is add"),
    Row("a bucket has two members exchanged", "dp", "bucket_grads", exchanged_members, MODEL),
    Row("a bucket's readers have each other's offsets", "dp", "bucket_grads", exchanged_unpacks, MODEL),
    Row("a weight gets another one's gradient", "tp", "comm", another_gradient("h.0.ln_1.weight", "h.1.ln_1.weight"), MODEL),
    Row("a weight is not updated", "tp", "comm", weight_stays("wpe.weight"), MODEL),
    Row("a weight's update is lost", "tp", "comm", update_lost("wpe.weight"),
        "the update of weight 'wpe.weight' of the model's program is lost"),
    Row("a hyperparameter of one weight is another", "tp", "comm", attr("adam", "beta2", "0.99"), "attribute 'beta2'"),
    Row("one weight's gradient is not clipped", "tp", "comm", without_clip_factor, MODEL),
    Row("a stage receives another value", "pp", "comm", stage_reads_another, MODEL),
    Row("BatchNorm: a rank's own mean", "norm", "comm", drop_first("all_reduce", "BatchNormalization", "forward"), IS_P),
    Row("BatchNorm: a rank's own number of elements", "norm", "comm", attr("batch_norm_mean", "count", "256"), "attribute 'count'"),
    Row("BatchNorm: a rank's own sums of gradients", "norm", "comm", drop_first("all_reduce", "gradient", "backward"), IS_P),
    Row("f16: gradients keep the factor of the loss", "f16", "comm",
        lambda p: drop(*first(p, "reciprocal", "gradient")), MODEL),
    Row("a step for every micro-batch", "zero2", "comm", each_slice_alone, "weights are updated in every micro-batch"),
    # Of the program that becomes code.
    Row("the gradient of a norm's weight is not summed, for the optimizer alone", "sp", "plan_memory",
        optimizer_reads_member("h.0.ln_1.weight"), IS_P),
    Row("the clip norm leaves a weight out", "tp", "plan_memory", norm_leaves_out, MODEL),
    Row("the clip norm counts a tied weight twice", "dp", "plan_memory",
        norm_term("wpe.weight", lambda p: update(p, "wte.weight").ins[1]), MODEL),
    Row("the clip norm is taken before the reduction", "dp", "plan_memory",
        norm_term("wpe.weight", lambda p: member(p, "wpe.weight")), IS_P),
    Row("the clip factor is too large", "tp", "plan_memory", clip_is("min", "max"), MODEL),
    Row("the loss of one rank", "dp", "plan_memory", loss_is(before_unpacked), "is a result, and a partial sum"),
    Row("a router's gradient is not summed over the experts", "ep", "plan_memory",
        drop_first("all_reduce", "gradient", "backward"), READS),
    Row("a gradient is reduced twice", "dp", "plan_memory", twice("all_reduce", "update", "update"),
        "is B along 'dp', and must be P"),
    Row("the loss is divided by the number of micro-batches once more", "tp", "plan_memory",
        attr("fill", "value", lambda old: repr(float(old) / 2), "gradient", "backward"), MODEL),
    Row("a mean over the labels of the last micro-batch", "vp", "plan_memory", all_become("accumulate", "take_partial"),
        "is a view with another offset than its source"),
    Row("recomputation draws another dropout", "recompute", "plan_memory",
        attr("dropout", "key", lambda old: str(int(old) + 1), "/h.0/attn/drop", "backward"), MODEL),
    Row("causal attention is not causal", "tp", "plan_memory", attr("attention", "causal", None), MODEL),
    Row("vocabulary: the embedding is not summed", "vp", "plan_memory", drop_first("all_reduce", "/Add", "forward"), READS),
    Row("a bucket has two members exchanged", "dp", "plan_memory", exchanged_members, MODEL),
    Row("a bucket's readers have each other's offsets and places", "dp", "plan_memory", exchanged_unpacks, MODEL),
    Row("a weight gets another one's gradient", "tp", "plan_memory", another_gradient("h.0.ln_1.weight", "h.1.ln_1.weight"), MODEL),
    Row("a weight is not updated", "tp", "plan_memory", weight_stays("wpe.weight"), "overlap while both are alive"),
    Row("a weight's update is lost", "tp", "plan_memory", update_lost("wpe.weight"), "overlap while both are alive"),
    Row("a hyperparameter of one weight is another", "tp", "plan_memory", attr("adam", "beta2", "0.99"), MODEL),
    Row("a stage receives another value", "pp", "plan_memory", stage_reads_another, "overlap while both are alive"),
    Row("BatchNorm: a rank's own mean", "norm", "plan_memory", drop_first("all_reduce", "BatchNormalization", "forward"), IS_P),
    Row("BatchNorm: a rank's own number of elements", "norm", "plan_memory", attr("batch_norm_mean", "count", "256"), MODEL),
    Row("f16: gradients keep the factor of the loss", "f16", "plan_memory",
        lambda p: drop(*first(p, "reciprocal", "gradient")), MODEL),
    Row("a step for every micro-batch", "zero2", "plan_memory", each_slice, "stands after an op that runs later in a step"),
    Row("two stages wait for each other", "pp", "plan_memory", stages_wait, "waits for itself"),
    Row("the body of a fused op has another operation", "zero2", "plan_memory",
        lambda p: setattr(first(p, "relu")[1], "kind", "gelu"), MODEL),
]


def run(words):
    done = subprocess.run([str(word) for word in words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=300)
    return done.returncode, done.stderr


def dumps(name, folder):
    """Compiles a plan; returns the model's program and the dumps by pass."""
    model, ranks, loss, plan, flags = PLANS[name]
    path = f"{MODELS}/{model}.onnx" if model else "samples/resnet/resnet.onnx"
    at = pathlib.Path(folder, name)
    status, said = run([BIN / "nnaot", path, "-g", ranks, "--batch", "8", "--loss", loss, "--plan", plan, *flags, "--dump-dir", at,
                        "--emit", "plan", "-o", "/dev/null"])
    assert status == 0, said
    found = sorted(at.glob("*.nn"))
    first_pass = next(i for i, path in enumerate(found) if path.stem.endswith(("-recompute", "-shard")))
    return found[first_pass - 1], {path.stem.split("-", 1)[1]: path for path in found}


def main():
    wanted, failed, made, unchanged = (sys.argv[1:] + [""])[0], 0, {}, set()
    with tempfile.TemporaryDirectory(prefix="nnaot-test-") as folder:
        for row in CLASSES:
            if not re.search(wanted, row.what):
                continue
            model, phases = made.setdefault(row.plan, None) or made.update({row.plan: dumps(row.plan, folder)}) or made[row.plan]
            text, faulty = phases[row.phase].read_text(), pathlib.Path(folder, "faulty.nn")

            def refused(p):
                faulty.write_text(str(p))
                return run([BIN / "nnaot-opt", faulty, "--passes=", f"--prove={model}", "-o", "/dev/null"])
            if (row.plan, row.phase) not in unchanged:
                unchanged.add((row.plan, row.phase))
                status, said = refused(Program(text))
                if status:
                    failed += 1
                    print(f"FAILED: plan {row.plan} after {row.phase} is refused as it is: {said}")
            p = Program(text)
            row.edit(p)
            status, said = refused(p)
            errors = [line for line in said.splitlines() if "error:" in line]
            if status != 1 or not re.search(row.words, "\n".join(errors)):
                failed += 1
                print(f"FAILED: {row.what}, plan {row.plan} after {row.phase}: " +
                      (f"none of these has '{row.words}':\n  " + "\n  ".join(errors) if status else "accepted"))
    print(f"{failed} of {len(CLASSES)} classes failed" if failed else f"all {len(CLASSES)} classes are refused")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
