#!/usr/bin/env python3
"""Draws single faults into texts of emitted programs, and counts those noticed:  program_faults.py --results FILE.jsonl

A fault is one change of one place of program.c, its other files or kernels.cu: a call dropped, moved, repeated or of another op, a place, a
number of a table, a formula (KINDS).  `nnaot-opt --check-program` (backend/validate) must notice each.  The plans
(PLANS) are compiled once, in --work.  The k-th fault is the same for the same seed and texts.

Some changes provably change nothing, and are drawn again; `unchanged` has the proofs: after macros are expanded the text is the
same, or a wait is only earlier, or waits change places.

    --count N        faults (default: 1000)
    --plans a,b      some of the plans
    --kinds a,b      some of the kinds
    --seed N         other faults
    --work DIR       the texts, and the changed one (default: a temporary folder)
    --show K         the change of fault K
    --least P        exit with a failure if less than P percent are noticed (default: 100)

The results file has a line for each fault, and a later call continues after the last.
"""

import argparse
import collections
import functools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))
MODELS = ROOT / "tests" / "e2e" / "models"
TEXT = ["--loss", "next_token(logits,input_ids)"]
CLASSES = ["--loss", "cross_entropy(logits)"]
ADAM = ["--optimizer", "adamw:weight_decay=0.1", "--clip-norm", "0.5"]
PLANS = {
    "dp": ["gpt", *TEXT, "-g", 2, "--plan", "dp"],
    "tp": ["bert", "--loss", "cross_entropy(logits,ignore_index=-100)", "-g", 4, "--plan", "tp", *ADAM],
    "dp_tp": ["vit", *CLASSES, "-g", 4, "--plan", "dp=2,tp=2", "--micro-batches", 2],
    "zero1": ["wide", *CLASSES, "-g", 4, "--plan", "zero1", *ADAM],
    "zero2": ["gpt", *TEXT, "-g", 2, "--plan", "zero2", "--accumulate", 2],
    "zero3": ["moe", *TEXT, "-g", 2, "--plan", "zero3", "--micro-batches", 2],
    "pp": ["gpt", *TEXT, "-g", 4, "--plan", "pp=2,dp=2", "--micro-batches", 4],
    "interleaved": ["gpt", *TEXT, "-g", 4, "--plan", "pp_interleaved=2,tp=2", "--micro-batches", 4],
    "dualpipe": ["moe", *TEXT, "-g", 2, "--plan", "pp_dualpipe", "--micro-batches", 4],
    "pipedream": ["wide", *CLASSES, "-g", 2, "--plan", "pp_pipedream", "--micro-batches", 4],
    "swap": ["gpt", *TEXT, "-g", 2, "--plan", "swap"],
    "offload": ["vit", *CLASSES, "-g", 2, "--plan", "offload", *ADAM],
    "cross_barrier": ["gpt", *TEXT, "-g", 2, "--plan", "cross_barrier", "--micro-batches", 2],
    "ep": ["moe", *TEXT, "-g", 4, "--plan", "dp=2,ep=2"],
    "unequal": ["gpt_tied", *TEXT, "-g", 4, "--plan", ROOT / "tests/e2e/plans/unequal.lua", "--micro-batches", 2],
    "dap": ["axial", *CLASSES, "-g", 4, "--plan", "dap"],
    "bf16": ["gpt", *TEXT, "-g", 2, "--plan", "zero1", "--dtype", "bf16", *ADAM],
    "module": [ROOT / "tests/backend/inputs/small.nn", "--passes=shard(mesh=acc:2:time+dp:2),comm,bucket_grads,fuse,plan_memory"],
    "operands": [ROOT / "tests/backend/inputs/big_operands.nn", "--passes=comm,fuse,plan_memory"],
    "bodies": ["bodies", "--passes=shard,comm,plan_memory"],
    "cuda_bodies": ["bodies", "--passes=shard,comm,plan_memory", "--target", "cuda"],
    "cuda": ["gpt", *TEXT, "-g", 2, "--plan", "dp", "--target", "cuda", *ADAM],
    "cuda_bf16": ["vit", *CLASSES, "-g", 4, "--plan", "pp=2,tp=2", "--target", "cuda", "--dtype", "bf16", *ADAM],
}

NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
STARTS = re.compile(r"nnrt_(all_reduce|reduce_scatter|all_gather|all_to_all)_")  # calls with an end, nnrt_wait
CALL = re.compile(r"^  (?:RUN\(\d+, )?(nnrt_\w+|fused_\w+|body_\w+)\(")


def code(line):
    """Returns a line without its comment."""
    return line.split(" // ")[0].rstrip()


class Text:
    """The lines of a file, and its functions and tables: name -> (first line, line after the last)."""

    def __init__(self, text, header=""):
        """`header`: the text of program.h, which has the macros of a program of several files."""
        self.lines = text.split("\n")
        self.blocks = {}
        name = None
        for i, line in enumerate(self.lines):
            begin = re.match(r"(?:NNRT_CLONES |extern \"C\" )?(?:static |const |void |int )[^#]*?(\w+)(?:\[\w*\])?(?:\)\(NnrtRank \*r\))?"
                             r"(?:\(.*\))? (?:= )?\{", line) or \
                re.match(r"extern \"C\" int (\w+)\(", line)
            if begin and not line.startswith((" ", "#")):
                name, first = begin[1], i
                if line.endswith(("};", "{}")):
                    self.blocks[name] = (first, i + 1)
                    name = None
            elif name and line in ("}", "};", "}};"):
                self.blocks[name] = (first, i + 1)
                name = None
        self.defines = [i for i, line in enumerate(self.lines) if line.startswith("#define ")]
        self.macros = {}
        for line in [*header.split("\n"), *self.lines]:
            if line.startswith("#define "):
                _, name, place = code(line).split(" ", 2)
                self.macros[name] = place
        self.values = [name for name, place in self.macros.items() if "->slab" in place or "->host" in place]

    def inside(self, pattern):
        """Returns the line numbers inside of the functions or tables with matching names."""
        return [i for name, (first, last) in self.blocks.items() if re.fullmatch(pattern, name) for i in range(first + 1, last - 1)]

    def steps(self):
        return self.inside(r"(train|eval)_.*(?<!_ops)(?<!_tensors)(?<!_values)(?<!_parts)(?<!_order)")

    def calls(self, pattern="."):
        return [i for i in self.steps() if CALL.match(self.lines[i]) and re.search(pattern, code(self.lines[i]))]


def change(text, i, old, new, start=0):
    line = text.lines[i]
    at = line.index(old, start)
    text.lines[i] = line[:at] + new + line[at + len(old):]


def other_number(rng, n):
    return str(rng.choice([x for x in (n + 1, n - 1, 2 * n, 0, n + rng.randrange(2, 70)) if x >= 0 and x != n]))


def change_number(rng, text, lines, start=r"", which=NUMBER):
    """Changes a number of one of the lines, after the first match of `start` in it."""
    rng.shuffle(lines)
    for i in lines:
        line = code(text.lines[i])
        at = re.search(start, line)
        found = [m for m in which.finditer(line, at.end())] if at else []
        found = [m for m in found if line[:m.start()].count('"') % 2 == 0]
        if found:
            m = rng.choice(found)
            text.lines[i] = line[:m.start()] + other_number(rng, int(m[0])) + line[m.end():]
            return i
    return None


# Each kind changes a text in place and returns the number of the line, or None if the text has no such place.

def drop_call(rng, t):
    i = rng.choice(t.calls(r"^  RUN\((?!.*nnrt_wait)") or [None])
    if i is not None:
        t.lines[i] = ""
    return i


def drop_wait(rng, t):
    i = rng.choice(t.calls(r"nnrt_wait\(|_wait\(|move_wait") or [None])
    if i is not None:
        t.lines[i] = ""
    return i


def repeat_call(rng, t):
    i = rng.choice(t.calls() or [None])
    if i is not None:
        t.lines[i] += "\n" + t.lines[i]
    return i


def exchange_calls(rng, t):
    calls = t.calls()
    pairs = [(a, b) for a, b in zip(calls, calls[1:]) if b == a + 1]
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    t.lines[a], t.lines[b] = t.lines[b], t.lines[a]
    return a


def late_wait(rng, t):
    """Moves a wait after some of the calls that follow it."""
    waits = [i for i in t.calls(r"nnrt_wait\(") if CALL.match(t.lines[i + 1])]
    if not waits:
        return None
    i = rng.choice(waits)
    last = i + 1
    while CALL.match(t.lines[last + 1]) and rng.random() < 0.5:
        last += 1
    t.lines[i:last + 1] = [*t.lines[i + 1:last + 1], t.lines[i]]
    return last


def last_wait(rng, t):
    """Moves the wait for a collective after the last call of its function: readers of the result, and calls that overwrite the
    operand, come before it."""
    waits = [i for i in t.calls(r"nnrt_wait\(") if CALL.match(t.lines[i + 1])]
    if not waits:
        return None
    i = rng.choice(waits)
    last = i + 1
    while t.lines[last + 1] != "}":
        last += 1
    t.lines[i:last + 1] = [*t.lines[i + 1:last + 1], t.lines[i]]
    return last


def move_call(rng, t):
    """Moves a call to the end of another function."""
    i = rng.choice(t.calls() or [None])
    ends = [last - 1 for name, (first, last) in t.blocks.items()
            if re.match(r"(train|eval)_", name) and "NnrtRank *r) {" in t.lines[first] and not first < (i or 0) < last]
    if i is None or not ends:
        return None
    end = rng.choice(ends)
    t.lines[end] = t.lines[i] + "\n" + t.lines[end]
    t.lines[i] = ""
    return i


def operand(rng, t):
    """Replaces a value of a call by another."""
    i = rng.choice(t.calls() or [None])
    names = [m for m in re.finditer(r"\b[A-Z]\w*\b", code(t.lines[i])) if m[0] in t.values] if i is not None else []
    if not names or len(t.values) < 2:
        return None
    m = rng.choice(names)
    line = t.lines[i]
    t.lines[i] = line[:m.start()] + rng.choice([v for v in t.values if v != m[0]]) + line[m.end():]
    return i


def exchange_operands(rng, t):
    """Exchanges two values of a call."""
    i = rng.choice(t.calls() or [None])
    names = [m for m in re.finditer(r"\b[A-Z]\w*\b", code(t.lines[i])) if m[0] in t.values] if i is not None else []
    if len(names) < 2:
        return None
    a, b = sorted(rng.sample(names, 2), key=lambda m: m.start())
    line = t.lines[i]
    t.lines[i] = line[:a.start()] + b[0] + line[a.end():b.start()] + a[0] + line[b.end():]
    return i


def used_defines(t):
    """Returns the macros that calls or tables name; others are of dead parameters."""
    used = set(re.findall(r"\b[A-Z]\w*\b", "\n".join(code(t.lines[i]) for i in t.steps())))
    return [i for i in t.defines if t.lines[i].split()[1] in used]


def offset(rng, t):
    return change_number(rng, t, [i for i in used_defines(t) if t.lines[i].split()[1] in t.values], r"(slab|host) \+ ",
                         re.compile(r"(?<=slab \+ )\d+|(?<=host \+ )\d+"))


def slots(rng, t):
    return change_number(rng, t, [i for i in used_defines(t) if "r->micro" in t.lines[i]], r"micro ")


def memory(rng, t):
    """Exchanges the slab and host memory."""
    lines = [i for i in used_defines(t) if t.lines[i].split()[1] in t.values]
    if not lines:
        return None
    i = rng.choice(lines)
    a, b = ("r->slab", "r->host") if "r->slab" in t.lines[i] else ("r->host", "r->slab")
    change(t, i, a, b)
    return i


def argument(rng, t):
    return change_number(rng, t, t.calls(r"^  RUN\("), r"nnrt_\w+\(")


def attribute(rng, t):
    """Changes a fraction, a flag or a mode."""
    lines = t.calls(r"(?<![\w.])\d+\.\d+|\btrue\b|\bfalse\b|e-\d")
    lines += [i for i in t.inside("prepare.*") if re.search(r"true|false|\d\.\d", t.lines[i])]
    if not lines:
        return None
    i = rng.choice(lines)
    m = rng.choice(list(re.finditer(r"\btrue\b|\bfalse\b|(?<![\w.])\d+\.\d+(?:e-\d+)?|(?<![\w.])\d+e-\d+", code(t.lines[i]))))
    if m[0] in ("true", "false"):
        new = "false" if m[0] == "true" else "true"
    else:
        new = repr(float(m[0]) * rng.choice([0.5, 1.25, -1.0]) + rng.choice([0.0, 0.25]))
    if new in (m[0], "-0.0"):
        new = "0.125"
    t.lines[i] = t.lines[i][:m.start()] + new + t.lines[i][m.end():]
    return i


def kernel(rng, t):
    """Calls the kernel of another op, or of other types."""
    lines = t.calls(r"nnrt_\w+\(")
    if not lines:
        return None
    names = sorted({CALL.match(t.lines[k])[1] for k in lines})
    i = rng.choice(lines)
    name = CALL.match(t.lines[i])[1]
    others = [n for n in names if n != name] + [re.sub("f32$", "bf16", name), re.sub("b4$", "b8", name)]
    change(t, i, name, rng.choice([n for n in others if n != name]))
    return i


def number_of_op(rng, t):
    return change_number(rng, t, t.calls(r"^  RUN\("), r"^  RUN\(", re.compile(r"(?<=RUN\()\d+"))


def zeroing(rng, t):
    lines = [i for i in t.steps() if "nnrt_zero(" in t.lines[i]]
    if not lines:
        return None
    i = rng.choice(lines)
    how = rng.randrange(5)
    if how == 0:
        t.lines[i] = ""
    elif how == 1:
        return change_number(rng, t, [i], r"nnrt_zero\(")
    elif how == 2:
        change(t, i, "== 0", rng.choice(["== 1", "!= 0", "> 0"]))
    elif how == 3:
        t.lines[i], t.lines[i + 1] = t.lines[i + 1], t.lines[i]
    else:
        name = re.search(r"nnrt_zero\((\w+)", t.lines[i])[1]
        change(t, i, name, rng.choice([v for v in t.values if v != name]))
    return i


def constant(rng, t):
    lines = [i for name, (first, last) in t.blocks.items() if name.startswith("constant") for i in range(first + 1, last - 1)]
    lines += [i for i in t.defines if "r->constant[" in t.lines[i]]
    return change_number(rng, t, lines, r"", re.compile(r"(?<![\w.])\d+(?=\.?\d*f?,)|(?<=constant\[)\d+|(?<=, )\d+(?=})"))


def group(rng, t):
    return change_number(rng, t, t.inside("groups"), "", re.compile(r"\d+"))


def group_of_call(rng, t):
    return change_number(rng, t, t.calls(r", r, \d+\)\);$"), r", r, (?=\d+\)\);$)")


def mesh(rng, t):
    return change_number(rng, t, t.inside("meshes"), r'"\w*"')


def message(rng, t):
    return change_number(rng, t, t.inside(r"messages_\d+"))


def reshard(rng, t):
    """Changes the table of moves."""
    lines = t.inside("moves")
    if not lines:
        return None
    if rng.random() < 0.7:
        return change_number(rng, t, lines)
    i = rng.choice(lines)
    m = rng.choice(list(re.finditer(r"true|false", t.lines[i])))
    t.lines[i] = t.lines[i][:m.start()] + ("false" if m[0] == "true" else "true") + t.lines[i][m.end():]
    return i


def move_statement(rng, t):
    """Changes the buffers or the number of a move."""
    lines = t.calls(r"nnrt_move_")
    if not lines:
        return None
    i = rng.choice(lines)
    if rng.random() < 0.4:
        return change_number(rng, t, [i], r", r, ")
    if "NULL" in t.lines[i] and rng.random() < 0.5:
        change(t, i, "NULL", rng.choice(t.values))
    else:
        m = re.search(r"\((\w+), (\w+), r,", t.lines[i])
        if not m:
            change(t, i, "move_wait", "move_start")
        else:
            change(t, i, f"({m[1]}, {m[2]}, r,", f"({m[2]}, {m[1]}, r,")
    return i


def rank_program(rng, t):
    """Exchanges the rank programs of two ranks."""
    line = next((i for i, s in enumerate(t.lines) if s.startswith("static const int code_of")), None)
    return None if line is None else change_number(rng, t, [line], r"\{")


def order(rng, t):
    lines = [i for i, s in enumerate(t.lines) if re.match(r"static const int \w+_order\[\]", s)]
    if not lines:
        return None
    i = rng.choice(lines)
    head, items = t.lines[i].split("{")
    numbers = items.rstrip("};").split(", ")
    a, b = rng.randrange(len(numbers)), rng.randrange(len(numbers))
    numbers[a], numbers[b] = numbers[b], numbers[a]
    t.lines[i] = head + "{" + ", ".join(numbers) + ("};" if t.lines[i].endswith("};") else "")
    return i


def task(rng, t):
    """Exchanges functions of tasks, or drops one."""
    lines = t.inside(r"\w+_parts")
    if not lines:
        return None
    i = rng.choice(lines)
    names = [m for m in re.finditer(r"\b(?:train|eval)_\w+|NULL", t.lines[i])]
    a = rng.choice(names)
    others = sorted({m for k in lines for m in re.findall(r"\b(?:train|eval)_\w+", t.lines[k])} | {"NULL"})
    t.lines[i] = t.lines[i][:a.start()] + rng.choice([o for o in others if o != a[0]]) + t.lines[i][a.end():]
    return i


def rank_table(rng, t):
    """Changes the functions and the memory of a rank program."""
    lines = t.inside("codes")
    if rng.random() < 0.6:
        return change_number(rng, t, lines, r"", re.compile(r"(?<=[ {])\d+(?=[,}])"))
    i = rng.choice(lines)
    m = rng.choice(list(re.finditer(r"\b(?:train|eval)_\w+|prepare\w*", t.lines[i])))
    names = sorted({n for k in lines for n in re.findall(r"\b(?:train|eval)_\w+|prepare\w*", t.lines[k])} | {"NULL"})
    t.lines[i] = t.lines[i][:m.start()] + rng.choice([n for n in names if n != m[0]]) + t.lines[i][m.end():]
    return i


def tensor(rng, t):
    lines = t.inside(r"(train|eval)_tensors")
    if rng.random() < 0.8:
        return change_number(rng, t, lines)
    i = rng.choice(lines)
    pattern = r"NNRT_\w+|, \.(?:train|host|unread|every_step) = true|\.(?:payload|offset|slots)\b"
    m = rng.choice(list(re.finditer(pattern, t.lines[i])))
    new = {"NNRT_f32": "NNRT_bf16", "NNRT_weight": "NNRT_state", "NNRT_input": "NNRT_scalar", ".payload": ".init_seed",
           ".offset": ".stride", ".slots": ".mesh"}.get(m[0], "NNRT_f64" if m[0].startswith("NNRT") else "")
    t.lines[i] = t.lines[i][:m.start()] + new + t.lines[i][m.end():]
    return i


def value(rng, t):
    return change_number(rng, t, t.inside(r"(train|eval)_values"))


def preparation(rng, t):
    return change_number(rng, t, [i for i in t.inside("prepare.*") if "PREPARE" in t.lines[i]], r"PREPARE\(\w+, ")


def prepared(rng, t):
    """Runs another preparation."""
    lines = t.calls(r"\(P\d+,")
    count = len([i for i in t.defines if re.match(r"#define P\d+ ", t.lines[i])])
    if not lines or count < 2:
        return None
    i = rng.choice(lines)
    m = re.search(r"\(P(\d+),", t.lines[i])
    change(t, i, m[0], f"(P{rng.choice([k for k in range(count) if k != int(m[1])])},")
    return i


def fused_lines(t):
    return [i for name, (first, last) in t.blocks.items() if re.match(r"(fused|body)_", name) for i in range(first, last - 1)]


def formula(rng, t):
    """Changes an operator, an operand or a number of a formula."""
    pattern = re.compile(r"\s+(const \w+ (v|u)\d+ = |[yw]\d+\[[ij]\] = |[ts]\d+(\[.\])? \+= )")
    lines = [i for i in fused_lines(t) if pattern.match(t.lines[i])]
    if not lines:
        return None
    i = rng.choice(lines)
    line = code(t.lines[i])
    begin = re.search(r"\+?= ", line).end()
    found = list(re.finditer(r"\b[uv]\d+\b|(?<= )[-+*/<>](?= )|\d+\.\d+f?|\bm_\w+|\bx\d+\b", line[begin:]))
    if not found:
        return None
    m = rng.choice(found)
    body = next((first, last) for first, last in t.blocks.values() if first <= i < last)
    names = sorted(set(re.findall(r"\b[uv]\d+\b", "\n".join(t.lines[body[0]:i]))))
    if re.fullmatch(r"[uv]\d+", m[0]):
        choice = [n for n in names if n != m[0]]
    elif m[0] in "-+*/<>":
        choice = [o for o in "-+*/<>" if o != m[0]]
    elif m[0].startswith("m_"):
        choice = [n for n in ("m_exp", "m_tanh", "m_sqrt", "m_abs") if n != m[0]]
    elif m[0].startswith("x"):
        choice = [f"x{int(m[0][1:]) + 1}", f"x{max(0, int(m[0][1:]) - 1)}"]
        choice = [n for n in choice if n != m[0]]
    else:
        choice = [m[0].replace(m[0].rstrip("f"), repr(float(m[0].rstrip("f")) + 0.5))]
    if not choice:
        return None
    t.lines[i] = line[:begin + m.start()] + rng.choice(choice) + line[begin + m.end():]
    return i


def loop(rng, t):
    """Changes a length, a stride or a bound of the loops of a fused body."""
    pattern = re.compile(r"for \(|_loop\(|parts|end = |\[\d+\]|launch\(|<\d+>|return i|\* \d|blockIdx|threadIdx")
    lines = [i for i in fused_lines(t) if pattern.search(code(t.lines[i])) and not re.match(r"(NNRT|static|extern)", t.lines[i])]
    return change_number(rng, t, lines)


def body(rng, t):
    """Calls another fused body."""
    names = sorted(n for n in t.blocks if re.fullmatch(r"fused_\d+|body_\d+", n)) or \
        sorted({m for i in t.calls(r"(fused|body)_") for m in re.findall(r"\b(?:fused|body)_\d+", t.lines[i])})
    lines = t.calls(r"\b(fused|body)_\d+\(")
    if not lines or len(names) < 2:
        return None
    i = rng.choice(lines)
    name = CALL.match(t.lines[i])[1]
    change(t, i, name + "(", rng.choice([n for n in names if n != name]) + "(")
    return i


def flush(rng, t):
    lines = t.calls("nnrt_flush_deferred")
    if not lines:
        return None
    i = rng.choice(lines)
    if rng.random() < 0.5:
        return change_number(rng, t, [i], r"\(r, ")
    t.lines[i] = ""
    return i


def copy(rng, t):
    return change_number(rng, t, t.calls("nnrt_swap_|nnrt_copy"), r"nnrt_\w+\(")


def start_of_shard(rng, t):
    which = re.compile(r"(?<=coord\[)\d+|(?<=\]\[)\d+|(?<=INT64_C\()\d+|(?<=\* )\d+(?= \+ r->)")
    return change_number(rng, t, t.calls(r"r->coord\["), r"", which)


def program(rng, t):
    pattern = re.compile(r"\.(n_\w+|ranks|micro_batches|batch|payload_bytes) = \d")
    lines = [i for i in t.inside("nnrt_program") if pattern.search(t.lines[i])]
    return change_number(rng, t, lines, "= ")


def deferred(rng, t):
    line = next((i for i, s in enumerate(t.lines) if "train_deferred[])" in s), None)
    if line is None:
        return None
    names = re.findall(r"train_deferred_\d+", t.lines[line])
    if len(names) < 2:
        return None
    a, b = rng.sample(names, 2)
    t.lines[line] = re.sub(rf"{a}\b|{b}\b", lambda m: b if m[0] == a else a, t.lines[line])
    return line


def comment(rng, t):
    """Lets a comment swallow the next line of a function: gcc splices them also with blanks between backslash and newline."""
    lines = [i for name, (first, last) in t.blocks.items() for i in range(first, last - 1)
             if " // " in t.lines[i] and code(t.lines[i + 1]).strip()]
    if not lines:
        return None
    i = rng.choice(lines)
    t.lines[i] += rng.choice(["\\", " \\ ", " \\   ", " \\\r", " \\\t", "\\\f ", "\\\0", "\r" + t.lines[i + 1].strip()])
    return i


def local(rng, t):
    """Renames a value of a fused body to a name that hides another."""
    declared = re.compile(r"\s+(?:const \w+ ([uv]\d+) = |\w+ (u\d+)\[n\];)")
    lines = [i for i in fused_lines(t) if declared.match(t.lines[i])]
    if not lines:
        return None
    i = rng.choice(lines)
    first, last = next((first, last) for first, last in t.blocks.values() if first <= i < last)
    found = declared.match(t.lines[i])
    name = found[1] or found[2]
    others = set(re.findall(r"\b(?:[uvxyts]\d+|[ijn])\b", "\n".join(t.lines[first:last]))) - {name}
    new = rng.choice(sorted(others | {"m_max", "i", "n"}))
    for k in range(i, last):
        t.lines[k] = re.sub(rf"\b{name}\b", new, t.lines[k])
    return i


def step(rng, t):
    """Makes the steps or the length of a loop over points zero or negative."""
    pieces = re.compile(r"at < (\d+); at \+= (\d+)")
    lines = [i for i in fused_lines(t) if pieces.search(t.lines[i]) or re.search(r"_loop\(\d", t.lines[i])]
    if not lines:
        return None
    i = rng.choice(lines)
    m = pieces.search(t.lines[i]) or re.search(r"_loop\((\d+)", t.lines[i])
    old = rng.choice(m.groups())
    new = rng.choice(["0", "-" + old, "INT64_MIN"])
    # The length of a piece is the step, too.
    for k in (i, i + 1) if m.lastindex == 2 and rng.random() < 0.7 else (i,):
        t.lines[k] = re.sub(rf"(?<![\w.]){old}(?![\w.])", new, t.lines[k])
    return i


def model_row(rng, t):
    """Drops rows of the tables for --check-against, with their number."""
    names = [n for n in ("model_values", "model_uses") if n in t.blocks]
    if not names:
        return None
    dropped = rng.sample(names, rng.choice([1, 1, 1, 2]))
    every = len(dropped) == 2 or rng.random() < 0.2
    for name in dropped:
        first, last = t.blocks[name]
        rows = range(first + 1, last - 1)
        rows = rows if every else [rng.choice(rows)]
        for i in rows:
            t.lines[i] = ""
        length = re.compile(rf"(?<=\.n_{name[6:]} = )\d+")
        k = next(k for k in t.inside("model_program") if length.search(t.lines[k]))
        t.lines[k] = length.sub(lambda m: str(int(m[0]) - len(rows)), t.lines[k])
    return first


def model_tables(rng, t):
    """Drops the tables for --check-against."""
    if "model_program" not in t.blocks:
        return None
    for name in ("model_values", "model_uses", "model_program"):
        first, last = t.blocks[name]
        t.lines[first:last] = [""] * (last - first)
    i = next(i for i in t.inside("nnrt_program") if ".model_program = " in t.lines[i])
    t.lines[i] = ""
    return i


KINDS = {f.__name__: f for f in (
    drop_call, drop_wait, repeat_call, exchange_calls, late_wait, last_wait, move_call, operand, exchange_operands, offset, slots,
    memory, argument, attribute, kernel, number_of_op, zeroing, constant, group, group_of_call, mesh, message, reshard, move_statement,
    rank_program, order, task, rank_table, tensor, value, preparation, prepared, formula, loop, body, flush, copy, start_of_shard,
    program, deferred, comment, local, step, model_row, model_tables)}
DEVICE = ("formula", "loop", "local")  # of kernels.cu, if there is one
PROVED = ("model_row",)  # noticed only with the proof, which has the model's value of each


def unchanged(text, before, after):
    """Returns why a change of lines changes nothing, or None.  `text`: as it was."""
    first = next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), min(len(before), len(after)))
    last = next((i for i, (a, b) in enumerate(zip(reversed(before), reversed(after))) if a != b), len(before))
    last = min(last, len(before) - first, len(after) - first)
    a, b = before[first:len(before) - last], after[first:len(after) - last]
    if any(line.startswith("#define") or re.search(r"\\\s*\0?$|\r", line) for line in a + b):
        return None
    # Without comments, and with macros expanded.
    a, b = ([re.sub(r"\b[A-Z]\w*\b", lambda m: text.macros.get(m[0], m[0]), code(line)) for line in lines if line.strip()]
            for lines in (a, b))
    if a == b:
        return "the same text"
    if sorted(a) != sorted(b):
        return None
    waits = [line for line in a if "nnrt_wait(" in line]
    if len(waits) == len(a):
        return "waits change places"
    # A wait that moves toward its start, over calls that are not its start.
    rest = [line for line in a if line not in waits]
    if not waits or rest != [line for line in b if line not in waits]:
        return None
    for wait in waits:
        y = re.search(r"nnrt_wait\(r, (.*)\)\);", wait)[1]
        was, now = a.index(wait), b.index(wait)
        if now > was or any(f"({y}," in line and STARTS.search(line) for line in a[now:was]):
            return None
    return "a wait is earlier"


def make(name, work):
    """Compiles a plan into `work`, unless it is there.  Returns the folder."""
    folder = work / name
    if not (folder / "planned.nn").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model, *flags = PLANS[name]
        if model == "bodies":  # a call of each of the fused bodies that tests compile
            model = folder / "calls.nn"
            inputs = ROOT / "tests" / "backend" / "inputs"
            model.write_text(subprocess.run([sys.executable, str(inputs / "call_bodies.py"), str(inputs / "bodies.nn")],
                                            check=True, capture_output=True, text=True).stdout)
        elif not str(model).endswith(".nn"):
            model = MODELS / f"{model}.onnx"
            flags += ["--batch", 4 if "--accumulate" in flags else 8]
        command = [BUILD / "bin" / "nnaot", model, *flags, "--emit", "c", "-o", folder, "--dump-dir", folder / "dump"]
        done = subprocess.run([str(x) for x in command], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
        dumps = folder / "dump"
        shutil.move(next(dumps.glob("*plan_memory.nn")), folder / "planned.nn")
        model = next(dumps.glob("*recompute.nn"), dumps / "00-input.nn")
        if "model_program" in (folder / "program.c").read_text():
            shutil.move(model, folder / "model.nn")
        shutil.rmtree(folder / "dump")
    return folder


def check(folder, planned, proved=False):
    """Returns whether nnaot-opt finds that the program runs the module, and its messages.  `proved`: it proves the plan."""
    prove = [f"--prove={planned.parent / 'model.nn'}"] if proved else []
    done = subprocess.run([str(BUILD / "bin" / "nnaot-opt"), str(planned), f"--check-program={folder}", *prove, "-o", os.devnull],
                          capture_output=True, text=True, errors="replace")
    if done.returncode and "was edited, or made of another" not in done.stderr:
        sys.exit(f"nnaot-opt ended with {done.returncode}:\n{done.stderr[-2000:]}")
    # The fingerprint is another after every edit: a text that is refused for that alone was accepted.
    return done.returncode == 0 or "the text runs the module, but its fingerprint" in done.stderr, done.stderr


@functools.cache
def read(path):
    header = path.parent / "program.h"
    return Text(path.read_text(), header.read_text() if header.exists() and path != header else "")


def files(folder, kind):
    """Returns the files that may have a place for a kind of fault."""
    if kind in DEVICE and (folder / "kernels.cu").exists():
        return ["kernels.cu"]
    return sorted(p.name for p in (*folder.glob("*.c"), *folder.glob("program.h")))


def draw(number, seed, plans, kinds, work):
    """Draws a fault: returns its plan, kind, file, old and new lines and the line; again until a text has such a place, and
    the change is one.  The second result counts the proofs of changes that are none."""
    proofs = collections.Counter()
    for attempt in range(10000):
        rng = random.Random(f"{seed}/{number}/{attempt}")
        # A kind without a place in some texts is tried in others first.
        kind = kinds[(number + attempt // 40) % len(kinds)]
        plan = rng.choice(plans)
        folder = make(plan, work)
        file = rng.choice(files(folder, kind))
        t = read(folder / file)
        before = t.lines
        t.lines = before.copy()
        try:
            line = KINDS[kind](rng, t)
        except IndexError:  # a file without such lines
            line = None
        after = "\n".join(t.lines).split("\n")
        t.lines = before
        if line is None or after == before:
            continue
        why = unchanged(t, before, after)
        if why is None:
            return (plan, kind, file, before, after, line), proofs
        proofs[why] += 1
    sys.exit("no text has a place for these kinds of faults")


def shown(before, after):
    """Returns the lines that are gone, and those that are new."""
    gone, new = collections.Counter(before), collections.Counter(after)
    return {"was": [line.strip() for line in gone - new][:3], "is": [line.strip() for line in new - gone][:3]}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--results", type=pathlib.Path)
    p.add_argument("--count", type=int, default=1000)
    p.add_argument("--plans", default=",".join(PLANS))
    p.add_argument("--kinds", default=",".join(KINDS))
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--work", type=pathlib.Path)
    p.add_argument("--show", type=int)
    p.add_argument("--least", type=float, default=100)
    o = p.parse_args()
    plans, kinds = o.plans.split(","), o.kinds.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        work = o.work or pathlib.Path(temporary)
        done = [json.loads(line) for line in o.results.read_text().splitlines()] if o.results and o.results.exists() else []
        for plan in plans:
            folder = make(plan, work)
            proved = bool(set(kinds) & set(PROVED)) and (folder / "model.nn").exists()
            accepted, said = check(folder, folder / "planned.nn", proved)
            if not accepted:
                sys.exit(f"a false alarm for plan {plan}:\n{said}")
        changed = work / "changed"
        numbers = [o.show] if o.show is not None else range(len(done), o.count)
        for number in numbers:
            (plan, kind, file, before, after, line), proofs = draw(number, o.seed, plans, kinds, work)
            shutil.rmtree(changed, ignore_errors=True)
            changed.mkdir(parents=True)
            for source in (work / plan).glob("*"):
                if source.name not in ("planned.nn", "model.nn", file):
                    os.symlink(source.resolve(), changed / source.name)
            (changed / file).write_text("\n".join(after))
            accepted, said = check(changed, work / plan / "planned.nn", kind in PROVED)
            message = next((s for s in said.splitlines() if "error:" in s), "")
            row = {"number": number, "plan": plan, "kind": kind, "file": file, "line": line + 1, "noticed": not accepted,
                   "unchanged": proofs, "message": message[-200:], **shown(before, after)}
            done.append(row)
            if o.results:
                with open(o.results, "a") as f:
                    f.write(json.dumps(row) + "\n")
            if accepted or o.show is not None:
                print(f"{'not noticed' if accepted else 'noticed'}: fault {number}, {kind} in {plan}/{file}:{line + 1}")
                for sign, lines in (("-", row["was"]), ("+", row["is"]), (" ", [message] if message else [])):
                    for s in lines:
                        print(f"  {sign} {s}")
    if o.show is not None:
        return
    print(f"{'kind':20} {'drawn':>6} {'noticed':>8} {'missed':>7}")
    for kind in [*kinds, "all"]:
        rows = [r for r in done if kind in (r["kind"], "all")]
        noticed = sum(r["noticed"] for r in rows)
        print(f"{kind:20} {len(rows):6} {noticed:8} {len(rows) - noticed:7}")
    proofs = sum((collections.Counter(r["unchanged"]) for r in done), collections.Counter())
    if proofs:
        print("drawn again, as nothing changed:", ", ".join(f"{why} ({n})" for why, n in sorted(proofs.items())))
    noticed = 100 * sum(r["noticed"] for r in done) / max(1, len(done))
    if noticed < o.least:
        sys.exit(f"{noticed:.1f} % were noticed, and at least {o.least:g} % must be")


if __name__ == "__main__":
    main()
