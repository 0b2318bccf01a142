"""A search respects the constraints of a program, and constraints never improve its result.

    random_partial.py [FIRST [COUNT]]      seeds FIRST .. FIRST+COUNT-1; the program of a failure is printed

An unconstrained search makes a plan of known cost.  Then a random part of the rows of a plan (record.h) is prescribed
with op_trans and split, and the rest is searched: rows of that plan itself, and rows of one made of random legal
splits.  The result contains every prescribed row, and its cost is never below that of the unconstrained search.
With all rows of the unconstrained plan prescribed, the cost is the same.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

NNAOT = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot")
HERE = pathlib.Path(__file__).resolve().parents[1]
MODELS = HERE / "e2e/models"
LOSSES = {"wide": "cross_entropy(logits)", "gpt": "next_token(logits,input_ids)"}
SLACK = 2e-4  # twice the optimality gap of a search
OP = re.compile(r'^ +\{ ("[^"]*"), +"(\w+)", +"(\w+)", +(\d+), +"(.)" +\},', re.M)
PARAM = re.compile(r'^ +\{ ("[^"]*"), +"(weight|state|input)", +("-"|\d+|\{ \d+ \}) +\},', re.M)
FREE = "function step(axis) search(axis) end\n"
SHAKEN = """function step(axis)
  local n = %d
  for _, o in ipairs(ops(nil, "forward")) do
    n = n * 1103515245 %% 2147483648 + 12345
    local dim, ndim = n // 65536 %% 3, o.outputs[1].ndim
    local letter = dim < ndim and o:result_letter(1, dim) or "-"
    if can(o, letter, axis) then op_trans(o, letter, axis) end
  end
end
"""


def compile(model, plan, folder, *extra, out="plan.json"):
    command = [NNAOT, MODELS / f"{model}.onnx", "--batch", 8, "--loss", LOSSES[model], "--optimizer", "adamw", "-g", 4,
               "--cluster", HERE / "e2e/plans/fast.lua", "--emit", "plan", "--plan", plan, "-o", folder / out, *extra]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return (folder / out).read_text()


def rows_of(model, program, folder, name):
    """Returns a program's decisions on model ops and parameters, by their rows; and their cost for a search."""
    file = folder / name
    file.write_text(program)
    saved = compile(model, file, folder, "--summary", folder / "summary.json", out="saved.lua")
    solver = json.loads((folder / "summary.json").read_text())["solver"]
    # The rows of @eval that differ follow in a section of their own.
    body = saved.split('["eval"]')[0] + "".join(saved.split("local parameters")[1:])
    ops = {m[:4]: m[4] for m in OP.findall(body)}
    params = {m[:2]: m[2] for m in PARAM.findall(body) if m[1] != "state"}
    return {**ops, **params}, solver.get("step_ms")


def statement(key, way):
    if len(key) == 4:
        return f'  op_trans(op({key[0]}, "{key[1]}", "{key[2]}", {key[3]}), "{way}", axis)'
    call, dim = ("store", way.strip("{ }")) if "{" in way else ("split", way)
    return f'  for _, v in ipairs(params("{key[1]}")) do if v.name == {key[0]} then {call}(v, {dim}, axis) end end'


def partial(rows):
    said = [statement(*r) for r in rows]
    return "\n".join(['function step(axis)', '  if graph() ~= "train" then return end', *said, "  search(axis)", "end", ""])


def check(seed, folder):
    rng = random.Random(seed)
    model = rng.choice(list(LOSSES))
    found, least = rows_of(model, FREE, folder, "free.lua")
    other, _ = rows_of(model, SHAKEN % rng.randrange(1 << 30), folder, "shaken.lua")
    wrong = []
    for rows, share in (found, 1), (found, rng.random()), (other, rng.random() ** 3), (other, rng.random() / 10):
        # The search decides only in the forward part whether an op passes partial sums on ("+").
        may_say = [(k, way) for k, way in sorted(rows.items()) if way != "+" or k[2] == "forward"]
        said = [r for r in may_say if rng.random() < share]
        try:
            result, cost = rows_of(model, partial(said), folder, "partial.lua")
        except RuntimeError as error:
            wrong.append(f"{error}\n{partial(said)}")
            continue
        lost = [(k, way, result.get(k)) for k, way in said if result[k].strip("{ }") != way.strip("{ }")]
        if lost:
            wrong.append(f"{lost[0]} and {len(lost) - 1} more were not kept\n{partial(said)}")
        if cost < least * (1 - SLACK) or (share == 1 and cost > least * (1 + SLACK)):
            wrong.append(f"a cost of {cost}, where a free search found {least}\n{partial(said)}")
    for text in wrong:
        print(f"seed {seed}, {model}: {text}", flush=True)
    return len(wrong)


def main():
    first, count = (int(a) for a in (sys.argv[1:] + ["0", "4"][len(sys.argv) - 1:]))
    with tempfile.TemporaryDirectory(prefix="nnaot-test-") as folder:
        wrong = sum(check(seed, pathlib.Path(folder)) for seed in range(first, first + count))
    print(f"{4 * count} partial plans, {wrong} failed")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
