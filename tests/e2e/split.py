"""Executables of --split-ranks hold only their rank's part of the weights, and train like the combined executable.

For every row of CASES the model is compiled both ways, with one plan.  The contents of a file are found by the bytes of
the initial weights: all of a weight, or the rows or columns of its rank.  Started together by mpirun, the files
of the ranks have the same losses, and save and export the same bytes, as the combined executable; and the losses of one
rank, up to rounding.
"""

import json
import shutil
import struct
import sys

import plan_cases
from common import compile_in_a_hurry, scratch, worst_difference
from plans import Failed, Trainer, call, read_weights

LIMIT, STEPS = 1e-4, 5
# Plan, model, ranks, more flags; then the numbers of ranks that hold a whole matrix, and whether matrices held whole by
# no rank are split into rows and into columns.
CASES = [
    ("dp", "wide", 2, [], {2}, False),
    ("tp", "wide", 2, [], {0}, True),
    ("tp", "wide", 2, ["--freeze", "2.*,4.weight"], {0}, True),
    ("pp", "wide", 2, [], {1}, False),
    ("pp=2,tp=2", "gpt", 4, [], {0, 2}, True),
]


def payload(path):
    """Returns the payload of an executable: the weights, and the model after them."""
    data = path.read_bytes()
    magic, offset, n, _, _ = struct.unpack("<8s3qQ", data[-40:])
    if magic != b"nnrtpay2":
        raise Failed(f"'{path}' has no trailer")
    return data[offset:offset + n]


def halves(shape, values):
    """Returns the bytes of both halves of a matrix, split into rows and into columns."""
    rows, columns = shape
    raw, half = values.tobytes(), len(values) * 2
    left, right = bytearray(), bytearray()
    for i in range(rows):
        at, middle, end = i * columns * 4, (i * columns + columns // 2) * 4, (i + 1) * columns * 4
        left += raw[at:middle]
        right += raw[middle:end]
    return {"rows": (raw[:half], raw[half:]), "columns": (bytes(left), bytes(right))}


def held(weights, files):
    """Returns the numbers of ranks that hold a whole matrix; and the splits of matrices held whole by no rank."""
    whole, cuts = set(), set()
    for name, (shape, values) in weights.items():
        if len(shape) != 2:
            continue
        count = sum(values.tobytes() in f for f in files)
        whole.add(count)
        if count:
            continue
        # No file may hold both halves.
        found = {cut for cut, parts in halves(shape, values).items()
                 if {sum(part in f for part in parts) for f in files} <= {0, 1} and
                 all(any(part in f for f in files) for part in parts)}
        if len(found) != 1:
            raise Failed(f"no file has '{name}', and it is cut into {found or 'nothing that was found'}")
        cuts |= found
    return whole, cuts


def together(exe, ranks, arguments):
    """Returns the command mpirun -n 1 exe.0 … : -n 1 exe.1 …"""
    out = ["mpirun"]
    for rank in range(ranks):
        out += [*([":"] if rank else []), "-n", 1, f"{exe}.{rank}", *arguments]
    return out


def outputs(trainer, model, steps, command):
    """Returns the log, weights and export of a run with evaluation; `command` returns it for given arguments."""
    at = {name: trainer.at(f"out.{name}") for name in ("log", "save", "export")}
    for path in at.values():
        path.unlink(missing_ok=True)
    files = [x for name, path in at.items() for x in (f"--{name}", path)]
    data = trainer.data(model)
    evaluation = ["--eval-every", 2, *(x for name in data[1::2] for x in ("--eval-input", name))]
    call(*command([*data, *evaluation, "--steps", steps, *files]))
    return at["log"].read_text(), read_weights(at["save"]), at["export"].read_bytes()


def trained(log):
    """Returns losses, norms and losses of evaluation from the log."""
    lines = [json.loads(line) for line in log.splitlines()]
    return [[line[k] for line in lines if k in line] for k in ("loss", "grad_norm", "eval_loss")]


def has_nodes(data):
    return b"Gemm" in data or b"MatMul" in data


def one_case(trainer, plan, model, ranks, flags, want_whole, want_cuts):
    trainer.compile("any", model, plan, ranks, flags)
    trainer.compile("each", model, plan, ranks, [*flags, "--split-ranks", "-j2"])
    anyone, each = trainer.at("any"), trainer.at("each")
    files = [payload(trainer.at(f"each.{rank}")) for rank in range(ranks)]

    def alike(arguments):
        return ["mpirun", "-n", ranks, anyone, *arguments]

    # A learning rate of 0 does not change weights.
    initial = outputs(trainer, model, 1, lambda arguments: alike([*arguments, "--lr", 0]))[1]
    whole, cuts = held(initial, files)
    if whole != want_whole or cuts != ({"rows", "columns"} if want_cuts else set()):
        raise Failed(f"weights are whole on {whole} ranks, and cut into {cuts}")
    if not has_nodes(files[0]) or any(map(has_nodes, files[1:])):
        raise Failed("the model is not with rank 0 alone")
    one, other = (outputs(trainer, model, STEPS, command)
                  for command in (alike, lambda arguments: together(each, ranks, arguments)))
    if trained(one[0]) != trained(other[0]) or one[1:] != other[1:]:
        raise Failed("the programs of the ranks do not train as the one that can be any")
    if not all(values.tobytes() in other[2] for _, values in other[1].values()):
        raise Failed("what is exported is not what is saved")
    trainer.compile("one", model, "dp", 1, flags)
    log = trainer.train("one", model, steps=STEPS)[0]
    want = [[line[k] for line in log] for k in ("loss", "grad_norm")]
    d = [worst_difference(got, w) for got, w in zip(trained(other[0]), want)]
    if not max(d) < LIMIT:
        raise Failed(f"losses and norms differ from those of one rank by {d}")
    return f"{len(payload(anyone)):9} " + " ".join(f"{len(f):8}" for f in files)


def main():
    if not shutil.which("mpirun"):
        print("there is no mpirun")
        return 0
    failed = 0
    print(f"{'plan':10} {'model':6} {'any':>9} bytes of the payload of each rank")
    with scratch() as folder:
        compile_in_a_hurry(folder)
        trainer = Trainer(plan_cases, folder, [])
        for plan, model, ranks, flags, *want in CASES:
            try:
                said = one_case(trainer, plan, model, ranks, flags, *want)
            except Failed as e:
                failed, said = failed + 1, f"FAILED: {e}"
            print(f"{plan:10} {model:6} {said}  {' '.join(flags)}".rstrip(), flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
