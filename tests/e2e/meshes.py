"""Programs on several meshes train as on one rank.

    meshes.py                      a slice
    meshes.py --all                all of CASES, and 30 random ones
    meshes.py --case NAME          one of them: stages, random3, …
    meshes.py --cuda               for GPUs, on the emulator
    meshes.py --compile            for GPUs, without a run: only nvcc's compilation and linking

nnaot-opt makes a training step of a model and shards it, once for each stage: with the stage's axes, plan and
devices.  Then each op gets the line of its own stage:

    %h = linear %x, %w : f32[8,32] {S(0), B} split=[0,0]              on devices 0-1 (dp=2)
    %y = linear %h, %v : f32[8,16] @s1 {B, S(1)} split=[0,n]          on devices 2-3 (tp=2)

so that comm has to move values between stages.  The case determines the stage of each op: `cut`
follows the model, forward and back; `deal` distributes ops at random, which moves nearly everything; `shake` does so,
too, and then moves values to any layout on any mesh and back, which comm would not do.  inputs/sums.nn is
handwritten.

Each program is trained as threads and under mpirun, sums.nn also as a program for each rank.  Losses, gradient
norms, losses of @eval and the saved weights are those of one rank up to rounding; printed are largest relative
differences.  The traffic is as predicted.
"""

import argparse
import functools
import json
import os
import random
import re
import shutil
import sys

import plan_cases
from common import BUILD, NNAOT, SAMPLES, compile_in_a_hurry, mpirun, scratch, worst_difference
from plan_cases import HERE, MODELS
from plans import (Failed, Trainer, call, counted_traffic, predicted_traffic, show,
                   weights_difference)

OPT = BUILD / "bin" / "nnaot-opt"
BATCH, STEPS, LIMIT = 24, 10, 1e-4
TRAIN = "simplify,raise,simplify,loss(spec={loss}),eval_graph,autodiff," \
        "optimizer(name=\"adamw:eps=1e-5\" clip=0.5),lower_batch_norm,simplify"
# The passes from comm on, by target.
BACKEND = {
    "cpu": "comm,fuse_comm,bucket_grads,legalize_types,fuse,plan_memory",
    "cuda": "comm,fuse_comm,bucket_grads,fuse_classifier,fuse_linear,fuse_attention(target=cuda),fuse_norm,"
            "expand_batch_norm,legalize_types(target=cuda),keep_casts,multi_tensor,fuse,plan_memory(target=cuda)",
}

# Name, model, slices of time, stages as (devices, axes, plan), assignment of ops to stages.
CASES = [
    ("stages", "wide", 1, [("0", "", "dp"), ("1", "", "dp")], "cut"),
    ("stages of dp", "gpt", 1, [("0-1", "dp:2", "dp"), ("2-3", "dp:2", "dp")], "cut"),
    ("micro-batches", "gpt", 2, [("0-1", "dp:2", "dp"), ("2-3", "dp:2", "dp")], "cut"),
    ("dp and tp", "gpt_tied", 2, [("0-1", "dp:2", "dp"), ("2-3", "tp:2", "tp")], "cut"),
    ("other sizes", "vit", 2, [("0", "", "dp"), ("1-3", "dp:3", "dp")], "cut"),
    ("overlapping", "wide", 1, [("0-2", "dp:3", "dp"), ("1-3", "dp:3", "dp")], "cut"),
    ("backwards", "bert", 2, [("2-3", "dp:2", "zero1"), ("1,0", "dp:2", "dp")], "cut"),
    ("three", "moe", 1, [("3", "", "dp"), ("1-2", "dp:2", "dp"), ("0", "", "dp")], "cut"),
    ("dealt", "wide", 2, [("0-2", "dp:3", "dp"), ("1-3", "dp:3", "dp"), ("1,0", "dp:2", "dp")], "deal"),
    ("shaken", "wide", 2, [("0-2", "dp:3", "dp"), ("1-3", "dp:3", "dp"), ("1,0", "dp:2", "dp")], "shake"),
    ("dealt gpt", "gpt", 1, [("0-1", "dp:2", "dp"), ("3,2", "tp:2", "tp"), ("1-3", "dp:3", "dp")], "deal"),
]
SLICE = ["stages", "micro-batches", "dp and tp", "overlapping", "backwards", "dealt", "shaken"]
SLICE_CUDA = ["dp and tp", "shaken"]  # the emulator is slow
N_RANDOM = 30


def random_case(seed):
    rng = random.Random(seed)
    ranks = rng.choice([2, 3, 4])
    stages = []
    for _ in range(rng.choice([2, 2, 3, 4])):
        devices = rng.sample(range(ranks), rng.randint(1, ranks))
        plan = rng.choice(["dp", "dp", "zero1", "tp"]) if len(devices) != 3 else "dp"
        stages.append((",".join(map(str, devices)), f"dp:{len(devices)}" if len(devices) > 1 else "", plan))
    missing = set(range(ranks)) - {int(d) for devices, _, _ in stages for d in devices.split(",")}
    if missing:
        stages.append((",".join(map(str, sorted(missing))), f"dp:{len(missing)}" if len(missing) > 1 else "", "dp"))
    return f"random{seed}", rng.choice(["wide", "wide", "vit", "gpt"]), rng.choice([1, 1, 2]), stages, \
        rng.choice(["cut", "deal", "shake"]), seed


def n_ranks(stages):
    devices = set()
    for text, _, _ in stages:
        for part in text.split(","):
            first, _, last = part.partition("-")
            devices |= set(range(int(first), int(last or first) + 1))
    return len(devices)


# -- The text of a module ------------------------------------------------------------------------------------------


def laid_out(trainer, model, slices, stage):
    """Returns the lines of a training step with the plan of a stage."""
    _, axes, plan = stage
    mesh = f"mb:{slices}:time" + (f"+{axes}" if axes else "")
    passes = TRAIN.format(loss=MODELS[model]["loss"]) + f",shard(mesh={mesh} plan={plan})"
    call(OPT, HERE / f"{model}.onnx", "--batch", BATCH, f"--passes={passes}", "-o", trainer.at("laid_out.nn"))
    return trainer.at("laid_out.nn").read_text().splitlines()


def without_layouts(line):
    line = re.sub(r"  # .*| split=\[[^]]*\]", "", line)
    return re.sub(r"(\w\[[\d,]*\]) \{[^}]*\}", r"\1", " ".join(line.split()))


def on_mesh(line, name):
    return re.sub(r"(\w\[[\d,]*\]) \{", rf"\1 @{name} {{", line)


NAME = r"%([^\s,]+)"
PARAM = r'(weight|state|scalar|input|copy) "([^"]*)"'


def parts(line):
    """Returns the names defined, the names read, and the location of a line."""
    code, _, loc = line.partition("  # ")
    defined, _, right = code.partition(" = ")
    read = right.split(" : ")[0]
    return re.findall(NAME, defined), re.findall(NAME, read), loc.split()[-1] if loc else ""


def is_op(line):
    return line.startswith("  %") and " = " in line.split("  # ")[0].split(" : ")[0] and not is_param(line)


def is_param(line):
    return re.match(r"  %\S+: ", line) is not None


class Cutter:
    """Consecutive stages: a stage has a contiguous part of the model's nodes, forward and backward, and updates the
    weights that its nodes read first."""

    def __init__(self, lines, n):
        forward = [line for line in lines if is_op(line) and " <- " not in line and "  # ?" not in line]
        nodes = dict.fromkeys(parts(line)[2] for line in forward)
        self.stage_of = {node: i * n // len(nodes) for i, node in enumerate(nodes)}
        self.values = {}
        weight = {line.split(":")[0].strip()[1:]: parts(line)[2] for line in lines if is_param(line)}
        for line in forward:
            for v in parts(line)[1]:
                if v in weight:
                    self.stage_of.setdefault(weight[v], self.stage_of[parts(line)[2]])

    def stage(self, line):
        defined, read, loc = parts(line)
        at = self.stage_of.get(loc)
        if at is None:
            at = max((self.values.get(v, 0) for v in read), default=0)
        self.values.update((v, at) for v in defined)
        return at


class Dealer:
    def __init__(self, n, seed):
        self.n, self.rng = n, random.Random(seed)

    def stage(self, _):
        return self.rng.randrange(self.n)


def param_stages(lines, stages):
    """Returns, by graph and label, the stage of the first op that reads a parameter; parameters shared by @eval and @train
    have one stage."""
    of, graph, label = {}, None, {}
    for line, at in zip(lines, stages):
        if line.startswith("graph"):
            graph, label = line.split()[1], {}
        elif is_param(line):
            label[line.split(":")[0].strip()[1:]] = re.search(PARAM, line).groups()
        elif is_op(line):
            for v in parts(line)[1]:
                if v in label:
                    of.setdefault((graph if label[v][0] == "input" else "", label[v]), at)
    return of


def made_whole(line):
    """Returns the line of an op that passes partial sums on, changed to replicated operands and results."""
    splits = re.search(r"split=\[([^]]*)\]", line).group(1).split(",")

    def layout(match):
        axes = match.group(2).split(", ")
        return match.group(1) + ", ".join("B" if s == "+" else a for a, s in zip(axes, splits)) + "}"

    line = re.sub(r"(\w\[[\d,]*\] \{)([^}]*)\}", layout, line)
    return re.sub(r"split=\[[^]]*\]", f"split=[{','.join('-' if s == '+' else s for s in splits)}]", line)


class Sums:
    """Replicates partial sums of one stage that another stage reads."""

    def __init__(self):
        self.stage_of, self.whole = {}, set()

    def line(self, line, at):
        defined, read, _ = parts(line)
        if re.search(r"split=\[[^]]*\+", line) and any(
                self.stage_of.get(v, at) != at or v in self.whole for v in read):
            line = made_whole(line)
            self.whole.update(defined)
        self.stage_of.update((v, at) for v in defined)
        return line


def compose(trainer, model, slices, stages, how, seed=0):
    """Returns the module with every op in its stage."""
    texts = [laid_out(trainer, model, slices, s) for s in stages]
    plain = [without_layouts(line) for line in texts[0]]
    for i, text in enumerate(texts):
        if [without_layouts(line) for line in text][2:] != plain[2:]:
            raise Failed(f"plan '{stages[i][2]}' changes the program, not only its layouts")
    placer = Cutter(texts[0], len(stages)) if how == "cut" else Dealer(len(stages), seed)
    chosen = [placer.stage(line) if is_op(line) else 0 for line in texts[0]]
    param = param_stages(texts[0], chosen)
    out, graph = [texts[0][0]], None
    for i, (devices, _, _) in enumerate(stages):
        axes = re.search(r"\(.*\)", texts[i][1]).group(0)
        out.append(f"mesh @s{i} devices={devices} {axes}")
    for k, line in enumerate(texts[0][2:], 2):
        if line.startswith("graph"):
            graph, sums = line.split()[1], Sums()
        if is_param(line):
            role = re.search(PARAM, line).groups()
            at = param.get((graph if role[0] == "input" else "", role), 0)
            out.append(on_mesh(texts[at][k], f"s{at}"))
        elif is_op(line):
            out.append(on_mesh(sums.line(texts[chosen[k]][k], chosen[k]), f"s{chosen[k]}"))
        else:
            out.append(line)
    return "\n".join(out) + "\n"


# -- Random moves --------------------------------------------------------------------------------------------------

VALUE = r"(f32|i64|i32|bool)\[([\d,]*)\](?: @(\w+))? \{([^}]*)\}"


def mesh_axes(lines):
    """Returns (name, size, "" or ":time") of the axes of each mesh."""
    found = (re.match(r"mesh @(\w+) .*\((.*)\)", line) for line in lines)
    return {m.group(1): [(name, int(size), time) for name, size, time in re.findall(r"(\w+)=(\d+)(:time)?", m.group(2))]
            for m in found if m}


def split(dims, layout, axes, how):
    for sbp, (_, size, _) in zip(layout, axes):
        if sbp.startswith("S"):
            dims[int(sbp[2:-1])] = how(dims[int(sbp[2:-1])], size)
    return dims


def random_layout(rng, dtype, dims, time, axes):
    """Returns a layout that splits a tensor evenly, with `time` along the time axis; and the shape of a shard."""
    layout, dims = [], list(dims)
    for axis in axes:
        fits = [f"S({d})" for d in range(len(dims)) if dims[d] % axis[1] == 0 and dims[d]]
        layout.append(time if axis[2] else
                      rng.choice(["B", *fits, *fits, *(["P"] if dtype in ("f32", "i64") else [])]))
        dims = split(dims, layout[-1:], [axis], lambda n, size: n // size)
    return layout, dims


def shaken(lines, seed=0):
    """Returns the module, in phase local, with some values moved to another layout, on another mesh, and back."""
    rng, meshes, out, renamed = random.Random(seed), mesh_axes(lines), [], {}
    first = next(iter(meshes))
    for k, line in enumerate(lines):
        if line.startswith("graph"):
            renamed = {}
        code, hash_, loc = line.partition("  # ")
        if renamed and not is_param(line):
            head, equals, code = code.partition(" = ") if is_op(line) else ("", "", code)
            code = head + equals + re.sub(r"%[^\s,]+", lambda m: renamed.get(m.group(0), m.group(0)), code)
        out.append(code + hash_ + loc)
        defined = parts(line)[0] if is_op(line) else []
        if len(defined) != 1 or rng.random() > 0.1:
            continue
        dtype, dims, mesh, layout = re.search(VALUE, code.split(" : ")[-1]).groups()
        mesh, layout, dims = mesh or first, layout.split(", ") if layout else [], [int(n) for n in dims.split(",") if n]
        time = next((sbp for sbp, axis in zip(layout, meshes[mesh]) if axis[2]), None)
        whole = split(list(dims), layout, meshes[mesh], lambda n, size: n * size)
        to = rng.choice(list(meshes))
        there, part = random_layout(rng, dtype, whole, time, meshes[to])
        old, away, back = f"%{defined[0]}", f"%away{k}", f"%back{k}"
        of_step = re.search(r" (backward|update)\b|$", code.split(" : ")[-1]).group(0)
        out.append(f"  {away} = move {old} shape={part} : {dtype}{part} @{to} {{{', '.join(there)}}}{of_step}")
        out.append(f"  {back} = move {away} shape={dims} : {dtype}{dims} @{mesh} {{{', '.join(layout)}}}{of_step}")
        renamed[old] = back
    return "\n".join(out) + "\n"


# -- Training ------------------------------------------------------------------------------------------------------


class MeshTrainer(Trainer):
    def __init__(self, folder, cuda):
        super().__init__(plan_cases, folder, ["--target", "cuda:sm_90"] if cuda else [])
        self.backend = BACKEND["cuda" if cuda else "cpu"]

    def compile_module(self, exe, module, passes, extra=()):
        call(NNAOT, module, f"--passes={passes}", "--lr", "0.003", *self.flags, *extra, "-o", self.at(exe),
             "--comm-manifest", self.at(f"{exe}.manifest.json"))

    def compile_stages(self, exe, model, slices, stages, *how):
        module, passes = self.at(f"{exe}.nn"), self.backend
        module.write_text(compose(self, model, slices, stages, *how))
        if how[0] == "shake":
            call(OPT, module, "--passes=comm,fuse_comm", "-o", module)
            module.write_text(shaken(module.read_text().splitlines(), *how[1:]))
            passes = passes[len("comm,fuse_comm,"):]
        self.compile_module(exe, module, passes)

    def run(self, exe, data, launcher=()):
        evaluation = ["--eval-every", 5]
        for name in data[1::2]:
            evaluation += ["--eval-input", name]
        return self.train(exe, None, launcher, STEPS, [*data, *evaluation])

    def data(self, model):
        return super().data(model) if model else []  # without a model, run passes the data

    @functools.lru_cache(None)
    def one_rank_of(self, model):
        self.compile_stages("one", model, 1, [("0", "", "dp")], "cut")
        return self.run("one", self.data(model))


def compare(trainer, exe, name, model, data, want, launchers):
    """Whether a program trains as on one rank."""
    good = True
    for how, launcher in launchers:
        try:
            log, weights = trainer.run(exe, data, launcher)
            d = [worst_difference([line[k] or 0 for line in log if k in line],
                                  [line[k] or 0 for line in want[0] if k in line])
                 for k in ("loss", "grad_norm", "eval_loss")] + [weights_difference(weights, want[1])]
            manifest, traffic = (json.loads(trainer.at(f"{exe}.{n}").read_text()) for n in ("manifest.json", "traffic"))
            predicted = counted_traffic(traffic) == predicted_traffic(manifest)
            ok = max(d) < LIMIT and predicted
            said = " ".join(f"{x:9.1e}" for x in d)
            said += ("" if predicted else "  NOT AS PREDICTED") + ("" if ok else "  FAILED")
        except Failed as e:
            ok, said = False, f"FAILED: {e}"
        show(name, model, traffic["ranks"] if ok else "", how, said)
        good &= ok
    return good


def launchers(ranks):
    return [("threads", ())] + ([("mpirun", mpirun(ranks))] if shutil.which("mpirun") else [])


def one_case(trainer, compiles, name, model, slices, stages, *how):
    try:
        want = None if compiles else trainer.one_rank_of(model)
        trainer.compile_stages("stages", model, slices, stages, *how)
    except Failed as e:
        show(name, model, n_ranks(stages), "", f"FAILED to compile: {e}")
        return False
    if compiles:
        show(name, model, n_ranks(stages), "", f"compiled: {trainer.at('stages').stat().st_size} bytes")
        return True
    return compare(trainer, "stages", name, model, trainer.data(model), want, launchers(n_ranks(stages)))


def by_hand(trainer, cuda):
    folder, data = HERE.parent / "inputs", ["--input", f"x={SAMPLES / 'mlp' / 'x.npy'}"]
    target = "(target=cuda)" if cuda else ""
    call(OPT, folder / "sums.nn", f"--prove={folder / 'sums.model.nn'}", "-o", trainer.at("proved.nn"))
    trainer.compile_module("one", folder / "sums.model.nn", f"shard,comm,fuse,plan_memory{target}")
    want = trainer.run("one", data)
    trainer.compile_module("sums", folder / "sums.nn", f"fuse,plan_memory{target}")
    good = compare(trainer, "sums", "sums", "", data, want, launchers(4))
    if shutil.which("mpirun") and not cuda:
        trainer.compile_module("each", folder / "sums.nn", f"fuse,plan_memory{target}", ["--split-ranks"])
        trainer.at("each").write_text('#!/bin/sh\nexec "$0.${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" "$@"\n')
        trainer.at("each").chmod(0o755)
        good &= compare(trainer, "each", "sums, a program each", "", data, want, launchers(4)[1:])
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--all", action="store_true")
    p.add_argument("--case")
    p.add_argument("--cuda", action="store_true")
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    cases = [*CASES, *map(random_case, range(N_RANDOM))]
    if not a.all:
        cases = [case for case in cases if case[0] in ([a.case] if a.case else SLICE_CUDA if a.cuda else SLICE)]
    if a.case and not cases:
        p.error(f"there is no case '{a.case}'")
    failed = 0
    show("case", "model", "ranks", "launcher", f"{'loss':>9} {'grad_norm':>9} {'eval':>9} {'weights':>9}")
    with scratch() as folder:
        compile_in_a_hurry(folder)
        if a.cuda:
            os.environ["NVCC"] = str(BUILD / "emulator" / "nvcc")
            os.environ["EMULATED_GPUS"] = "4"
        trainer = MeshTrainer(folder, a.cuda or a.compile)
        by_itself = a.case or a.compile
        if not by_itself:
            failed += not by_hand(trainer, a.cuda)
        for case in cases:
            failed += not one_case(trainer, a.compile, *case)
    print(f"{len(cases) + (not by_itself)} programs, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
