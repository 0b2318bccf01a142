"""--check-against: a plan's values are equal to the single-device program's, and a planted fault is found by name.

    check_against.py            a slice of PLANS; planted faults; wrong references; launchers, checkpoints
    check_against.py --all      every plan of plan_cases.py, in f32 and bf16

Faults are edits of program.c, or of a kernel or collective that is linked in place of the runtime's.
tests/bench/check_faults.py draws them at random.
"""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import plan_cases
from common import NNAOT, ROOT, check, compile_in_a_hurry, counted_plan, finish, one_file, run, scratch

EQUAL = re.compile(r"equal to '(.*)' in (\d+) steps: (\d+) of (\d+) values, results of (\d+) operations; of the others, "
                   r"(\d+) are partial sums only, (\d+) are not in the memory of the reference, and (\d+) are inside of kernels "
                   r"or in pieces")
DIFFERS = "differs from that of the single-device program"
# Plan, model, ranks, flags, and the least share of values that are compared.
PLANS = [
    ("dp", "wide", 2, [], 0.6),
    ("dp", "bert", 2, ["--dtype", "bf16"], 0.5),
    ("tp", "gpt", 4, [], 0.75),
    ("zero3", "moe", 4, ["--micro-batches", 2], 0.6),
    ("pp", "gpt_tied", 2, ["--micro-batches", 4], 0.75),
    ("pp_3f1b", "recycle", 2, ["--micro-batches", 4], 0.6),
    ("sp", "gpt", 4, ["--dtype", "bf16"], 0.5),
    ("ep", "moe", 4, [], 0.7),
    ("coshard", "vit", 2, [], 0.7),
    ("vp", "gpt_tied", 2, ["--micro-batches", 2, "--dtype", "bf16"], 0.4), # the loss is split over classes
    ("dap", "axial", 2, [], 0.7),
    ("dp=2,swap=1", "gpt", 2, [], 0.7),
    ("offload", "vit", 2, [], 0.6),
    ("zero1=2,offload_gradients=1", "gpt", 2, ["--micro-batches", 2], 0.6),
    ("cross_barrier", "gpt", 2, [], 0.7),                # updates of a step run in the next one
    ("dp=2,optimizer_in_backward=1", "wide", 2, [], 0.5),
]


def words_of(model, folder, plan):
    words = plan_cases.compile_flags(model, folder)
    if re.search("cross_barrier|optimizer_in_backward|pipedream", plan): # they update before the norm is known
        at = words.index("--clip-norm")
        words = words[:at] + words[at + 2:]
    return [NNAOT, *words, "--plan", counted_plan(plan, folder)]


def compile_plan(folder, out, plan, model, ranks, flags, ok=0):
    return run(*words_of(model, folder, plan), "-g", ranks, *flags, "--check-with", 1, "-o", out, ok=ok)


def against(out, reference, data, *flags, ok=0, launcher=(), steps=3):
    return run(*launcher, out, *data, "--steps", steps, "--check-against", reference, *flags, ok=ok)


def equal(what, said, least=0.0, steps=3):
    found = EQUAL.search(said)
    check(f"{what}: one line says that the programs are equal", found is not None and len(EQUAL.findall(said)) == 1, said)
    if not found:
        return
    n, total, *others = (int(found[i]) for i in (3, 4, 6, 7, 8))
    check(f"{what}: {n} of {total} values are compared", int(found[2]) == steps and n >= least * total, said)
    check(f"{what}: the numbers add up", n + sum(others) == total, said)


def plans(folder):
    for plan, model, ranks, flags, least in PLANS:
        compile_plan(folder, folder / "x", plan, model, ranks, flags)
        said = against(folder / "x", folder / "x.check", plan_cases.data_flags(model, folder))
        equal(f"{plan} of {model} {flags}", said, least)
    run(*words_of("wide", folder, "pp_pipedream=2"), "-g", 2, "--micro-batches", 4, "-o", folder / "async")
    said = compile_plan(folder, folder / "x", "pp_pipedream=2", "wide", 2, ["--micro-batches", 4], ok=1)
    check("--check-with of an asynchronous schedule", "error: --check-with: the plan is not proved, so its values cannot" in said,
          said)
    said = against(folder / "async", folder / "async", plan_cases.data_flags("wide", folder), ok=1)
    check("--check-against of one", "nothing is known of the meaning of this executable's values" in said, said)


def every_plan(folder):
    for plan, models, ranks, flags, _ in plan_cases.PLANS:
        for more in [], ["--dtype", "bf16"]:
            compile_plan(folder, folder / "x", plan, models[0], ranks[0], [*flags, *more])
            said = against(folder / "x", folder / "x.check", plan_cases.data_flags(models[0], folder))
            equal(f"{plan} of {models[0]} {flags} {more}", said)


# ---- faults

def changed(text, pattern, new):
    """Replaces the first match."""
    out, n = re.subn(pattern, new, text, count=1, flags=re.M)
    assert n == 1, pattern
    return out


def build(src, text, replaced=None):
    """Makes src/program of a text of program.c, as its head says."""
    (src / "program.c").write_text(text)
    commands = re.findall(r"^//   (\S.*)$", text, re.M)
    commands[0] = re.sub(r"^\S+", os.environ["CC"], commands[0])
    # A kernel, or a function of the transport.
    if replaced:
        path, pattern, new = replaced
        (src / "fault.c").write_text(changed((ROOT / path).read_text(), pattern, new))
        words = f"-D_GNU_SOURCE -w -I{(ROOT / path).parent} -c fault.c -o fault.o"
        run("sh", "-c", commands[0].replace("-c program.c -o program.o", words), cwd=src)
        commands[1] = commands[1].replace("program.o", "program.o fault.o", 1)
    for command in commands:
        run("sh", "-c", command, cwd=src)


# What is wrong; an edit of program.c; a file of the runtime with an edit; words of the error.
FAULTS = [
    ("a constant", (r"(RUN\(\d+, nnrt_layer_norm_f32\(H_1_LN_2\S*, .*) 9\.99\S+\)\);", r"\1 0.25));"), None,
     ["layer_norm  gpt.onnx:/h.1/ln_2/LayerNormalization: its result 1"]),
    ("an operand",
     (r"(nnrt_linear_f32\(P\d+, H_1_ATTN_K_MATMUL_OUTPUT_0, H_1_LN_1\w+, )H_1_ATTN_K_WEIGHT", r"\1H_1_ATTN_V_WEIGHT"), None,
     ["linear  gpt.onnx:/h.1/attn/k/MatMul: its result"]),
    ("a group", (r"(nnrt_all_reduce_f32\(\w+, H_0_MLP_DOWN_MATMUL_OUTPUT_0, 1024, r, )0", r"\g<1>1"), None,
     ["all_reduce  gpt.onnx:/h.0/mlp/down/Add (all_reduce): its result", "on ranks 0, 1, 2 and 3",
      "partial sums that it adds up, of linear  gpt.onnx:/h.0/mlp/down/MatMul"]),
    ("a box", (r"(nnrt_dropout_f32\(H_0_MLP_DROP\w+, .*)r->coord\[0\]\[0\]", r"\g<1>0"), None,
     ["dropout  gpt.onnx:/h.0/mlp/drop/Dropout: its result", "on ranks 2 and 3", "note: rank 2: element [4,"]),
    ("a missing scale", (r"; // scale", r" * 0.5f; // scale"), None,
     ["partial sums that it adds up, of fused scale  gpt.onnx:/lm_head/MatMul (loss)"]),
    ("a missing call", (r"RUN\((\d+), nnrt_gather_back_f32\(.*?\)\); //", r"RUN(\1, 0); //"), None,
     ["all_reduce  gpt.onnx:wte.weight", "partial sums that it adds up, of gather_back  gpt.onnx:/wte/Gather (gradient)"]),
    ("memory that another value overwrites",
     (r"#define H_0_LN_1_WEIGHT \(\(float \*\)\(r->slab \+ \d+\)\)", "#define H_0_LN_1_WEIGHT ((float *)(r->slab + 162944))"), None,
     ["layer_norm  gpt.onnx:/h.0/ln_1/LayerNormalization"]),
    ("a kernel", None,
     ("rt/cpu/norm.c", r"off \* off \+ eps", "off * off + eps + 0.01f"),
     ["layer_norm  gpt.onnx:/h.0/ln_1/LayerNormalization: its result 1"]),
    ("a collective", None,
     ("rt/comm.c", r"(void nnrt_comm_add\([^{]*\{)", r"\1\n  if (n > 1) n--;"), ["all_reduce  gpt.onnx:/h.0/attn/out/Add"]),
    ("an update", None,
     ("rt/cpu/optimizers.c", r"\(1\.0 - hyper->beta2\)", "(1.0 - hyper->beta1)"), ["adam  gpt.onnx:"]),
]


def faults(folder):
    data = plan_cases.data_flags("gpt", folder)
    words = [*plan_cases.compile_flags("gpt", folder), "-g", 4, "--plan", "dp=2,tp=2"]
    run(NNAOT, *words, "--check-with", 1, "-o", folder / "gpt")
    run(NNAOT, *words, "--emit", "c", "-o", folder / "src")
    text = one_file(folder / "src")
    for what, edit, replaced, words in FAULTS:
        build(folder / "src", changed(text, *edit) if edit else text, replaced)
        said = against(folder / "src/program", folder / "gpt.check", data, ok=1)
        check(f"{what} is found", "error: step 1: " in said and DIFFERS in said and "\nnote: rank " in said, said)
        check(f"{what} is found by name", all(word in said for word in words or []), said)
        check(f"{what} is reported once", said.count("error: ") == 1, said)
        if what == "a collective":
            said = run(folder / "src/program", *data, "--steps", 1, ok=1)
            check("wrong sums are noticed without a reference",
                  "error: after step 0: the sum of checksums over all ranks is wrong, while no copies differ: " in said, said)
    build(folder / "src", text)
    equal("without a fault", against(folder / "src/program", folder / "gpt.check", data))


# ---- launchers, checkpoints

def launched(folder):
    data = plan_cases.data_flags("gpt", folder)
    compile_plan(folder, folder / "gpt", "dp", "gpt", 2, ["--micro-batches", 2])
    x, one = folder / "gpt", folder / "gpt.check"
    if shutil.which("mpirun"):
        equal("mpirun", against(x, one, data, launcher=["mpirun", "-n", 2]))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(2):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=str(port))
        started.append(subprocess.Popen([str(w) for w in [x, *data, "--steps", 3, "--check-against", one]], env=env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    said = [p.communicate(timeout=120)[0] for p in started]
    check("torchrun: status 0", [p.returncode for p in started] == [0, 0], *said)
    equal("torchrun", "".join(said))
    # A run that resumes: the reference resumes from the same checkpoint, and writes none.
    run(x, *data, "--steps", 2, "--checkpoint-dir", folder / "ck", "--seed", 5, "--shuffle", 3)
    said = against(x, one, data, "--checkpoint-dir", folder / "ck", "--resume", "--shuffle", 3, steps=5)
    equal("a resumed run", said)
    check("the checkpoint of the checked run", sorted(p.name for p in (folder / "ck").iterdir())[-1].find("5") >= 0,
          *(folder / "ck").iterdir())
    # The weights of a checked run are those of the reference.
    against(x, one, data, "--save", folder / "a.safetensors")
    left = [p for p in pathlib.Path(os.environ.get("TMPDIR", "/tmp")).glob("nnaot-check-*")]
    check("no file is left", not left, left)


# ---- wrong references

def refused(what, words, out, reference, data, *flags, ok=1):
    said = against(out, reference, data, *flags, ok=ok)
    check(what, all(word in said for word in words) and "error: " in said, said)


def wrong(folder):
    data = plan_cases.data_flags("wide", folder)
    compile_plan(folder, folder / "x", "dp", "wide", 2, [])
    x, one = folder / "x", folder / "x.check"
    refused("a missing file", ["no-such", "No such file"], x, folder / "no-such", data)
    (folder / "text").write_text("no program, and longer than the last bytes of one")
    refused("not an executable of nnaot", ["is no executable of nnaot", "hint: nnaot --check-with 1"], x, folder / "text", data)
    shutil.copy(one, folder / "locked")
    (folder / "locked").chmod(0o644)
    if os.getuid():
        refused("not executable", ["cannot run"], x, folder / "locked", data)
    refused("several ranks", ["is for 2 ranks, and the reference must be for one"], x, x, data)
    said = run(x, *data, "--steps", 0, "--check-against", one, ok=2)
    check("--steps 0", "--steps 0: a number from 1 was expected" in said, said)
    said = run(x, *data, "--steps", 3, "--check-against", ok=2)
    check("no value", "'--check-against' needs a value" in said, said)
    said = run(x, *data, "--steps", 3, "--check-against", one, "--memory", folder / "m.json", ok=2)
    check("--memory", "--check-against reads between them" in said, said)
    said = run(x, "--eval-only", "--check-against", one, ok=2)
    check("--eval-only", "--check-against has no effect with --eval-only" in said, said)
    said = run(x, *data, "--check-write", "9", ok=1)
    check("the hidden flag", "--check-write is for --check-against" in said, said)
    check("--help", "--check-against FILE" in run(x, "--help") and "check-write" not in run(x, "--help"))

    def other(*words, model="wide"):
        flags = plan_cases.compile_flags(model, folder)
        given = dict(zip(words[::2], words[1::2]))
        for i in range(1, len(flags) - 1):
            if flags[i] in given:
                flags[i + 1] = given.pop(flags[i])
        run(NNAOT, *flags, *(w for pair in given.items() for w in pair), "-o", folder / "other")
        return folder / "other"

    refused("another model", ["is of another model, 'vit.onnx', and this executable of 'wide.onnx'"], x, other(model="vit"), data)
    refused("another batch", ["takes 16 rows a step, and this executable 8"], x, other("--batch", 16), data)
    refused("another loss", ["was compiled with --loss"], x, other("--loss", "cross_entropy(logits,ignore_index=3)"), data)
    refused("another type", ["was compiled with --dtype \"bf16\", and this executable with \"f32\""], x, other("--dtype", "bf16"),
            data)
    refused("another optimizer", ["was compiled with --optimizer"], x, other("--optimizer", "sgd"), data)
    refused("micro-batches", ["computes in 2 micro-batches"], x, other("--micro-batches", 2), data)
    refused("another schedule of the learning rate", ["was compiled with --lr-schedule"], x, other("--lr-schedule", "linear"), data)
    # A plan that transforms the model.
    compile_plan(folder, folder / "pieces", "coshard", "vit", 2, [])
    refused("another transform", ["computes another program than the one that the plan 'coshard' distributes"], folder / "pieces",
            other(model="vit"), plan_cases.data_flags("vit", folder))
    # Any program of one rank for the same step is a reference; fewer values are in its memory.
    equal("an ordinary program of one rank", against(x, other(), data), 0.5)

    for flags, words, ok in [
        (["--check-with", 2], "--check-with is 1, not 2: the reference is of one rank", 2),
        (["--check-with", 0], "--check-with is 1, not 0: the reference is of one rank", 2),
        (["--check-with", 1, "--emit", "c"], "--check-with has no effect with --emit c", 2),
        (["--check-with", 1, "--summary", folder / "w.check"], "would both be written to", 1),
    ]:
        said = run(NNAOT, *plan_cases.compile_flags("wide", folder), *flags, "-o", folder / "w", ok=ok)
        check(" ".join(map(str, flags)), words in said, said)


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        if "--all" in sys.argv:
            every_plan(folder)
            finish()
        wrong(folder)
        launched(folder)
        faults(folder)
        plans(folder)
    finish()


main()
