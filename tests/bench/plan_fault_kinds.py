"""The kinds of single faults of a distributed program, for plan_faults.py: one row of KINDS and one function per kind.

A function gets a program, one of its entry graphs and a source of random numbers, and returns a list of candidates.  A
candidate is a function without arguments that changes the program and returns a line that describes the change, or None if
nothing fits.  Faults keep the text well-formed where they can, with the types and layouts that would follow, because the
reader finds the rest.  Kinds that change ops also reach the bodies of fused and multi_tensor ops.
"""

import copy
import dataclasses
import json
import pathlib
import re
import sys
from typing import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "plan"))

from plan_fault_edits import (ALIKE, COLLECTIVES, LARGE, OPTIMIZERS, SWAPS, all_ops, another, insert_after, of_kinds, passed_on,
                              reads_another, set_layout, size_of, split_elementwise)
from plan_fault_schedules import (places, schedule_actions, schedule_devices, schedule_order, schedule_receives, segments,
                                  slots, swaps)
from plan_text import read

# -- Communication -----------------------------------------------------------------------------------------------------

def dropped(kinds):
    def candidates(p, g, r):
        def edit(h, op):
            passed_on(h, op, op.ins[0])
            return f"{op.kind} {op.out[0]} is dropped"
        return [lambda h=h, op=op: edit(h, op) for h, op in of_kinds(p, g, *kinds)]
    return candidates


def one_reader_early(p, g, r):
    def edit(h, op):
        user, i = r.choice(h.readers(op.out[0]))
        read(user, i, op.ins[0])
        return f"a reader of {op.out[0]} gets the operand of its {op.kind}"
    return [lambda h=h, op=op: edit(h, op) for h, op in of_kinds(p, g, *COLLECTIVES, "accumulate", "move") if h.readers(op.out[0])]


def other_collective(p, g, r):
    def edit(h, op):
        source, n = h.before(op)[op.ins[0]], size_of(p, op.types[0].mesh, op.attrs["axis"])
        dims, dim = source.dims, int(op.attrs.get("dim", op.attrs.get("from", 0)))
        to = 0 if dim else 1
        kind = r.choice([kind for kind in [*COLLECTIVES, "accumulate"] if kind != op.kind])
        if kind not in ("all_reduce", "accumulate") and (dim >= len(dims) or (kind == "all_to_all" and to >= len(dims))):
            return None
        attrs = {}
        if kind == "all_gather":
            dims[dim] *= n
        elif kind in ("local_slice", "reduce_scatter"):
            dims[dim] //= n
        elif kind == "all_to_all":
            dims[dim], dims[to] = dims[dim] * n, dims[to] // n
            attrs = {"from": str(dim), "to": str(to)}
        if kind in ("all_gather", "local_slice", "reduce_scatter"):
            attrs = {"dim": str(dim)}
        old, op.kind, op.attrs = op.kind, kind, {"axis": op.attrs["axis"], **attrs}
        op.types[0].type = f"{source.dtype}[{','.join(map(str, dims))}]"
        return f"{kind} {op.out[0]} was {old}"
    return [lambda h=h, op=op: edit(h, op) for h, op in of_kinds(p, g, *COLLECTIVES, "accumulate")]


def partial_sums(p, g, r):
    """take_partial for accumulate, one for another, or one put in."""
    kinds = ["accumulate", "take_partial", "as_partial"]
    times = [name for name, (_, time) in p.meshes().get(None, {}).items() if time]

    def other(op):
        old, op.kind = op.kind, r.choice([kind for kind in kinds if kind != op.kind])
        return f"{op.kind} {op.out[0]} was {old}"

    def put(op):
        new = insert_after(g, op, r.choice(kinds[1:]), {"axis": f'"{times[0]}"'})
        set_layout(p, new.types[0], times[0], "P" if new.kind == "as_partial" else "B")
        return f"{new.kind} after {op.out[0]}"
    found = [lambda op=op: other(op) for _, op in of_kinds(p, g, *kinds)]
    ops = [op for op in g.ops if times and op.types and op.types[0].dtype.startswith(("f", "bf"))]
    return found + [lambda op=op: put(op) for op in r.sample(ops, min(len(ops), 1 + len(found)))]


def reduced_twice(p, g, r):
    def edit(h, op):
        insert_after(h, op, op.kind, op.attrs)
        return f"{op.kind} {op.out[0]} is done twice"

    def counted(h, op):
        share = insert_after(h, op, "as_partial", op.attrs)
        set_layout(p, share.types[0], op.attrs["axis"], "P")
        total = insert_after(h, share, "accumulate", op.attrs)
        set_layout(p, total.types[0], op.attrs["axis"], "B")
        return f"{op.out[0]} is counted once per micro-batch"
    found = of_kinds(p, g, "all_reduce", "accumulate")
    return ([lambda h=h, op=op: edit(h, op) for h, op in found] +
            [lambda h=h, op=op: counted(h, op) for h, op in found if op.kind == "accumulate"])


def wrong_axis(p, g, r):
    def edit(op):
        axes = [name for name in p.meshes().get(op.types[0].mesh, {}) if name not in op.attrs["axis"].strip('"').split("+")]
        if not axes:
            return None
        old, op.attrs["axis"] = op.attrs["axis"], f'"{r.choice(axes)}"'
        return f"{op.kind} {op.out[0]} over {op.attrs['axis']} for {old}"

    def fewer(op):
        axes = op.attrs["axis"].strip('"').split("+")
        axes.remove(r.choice(axes))
        op.attrs["axis"] = f'"{"+".join(axes)}"'
        return f"{op.kind} {op.out[0]} over {op.attrs['axis']} alone"
    found = [op for _, op in of_kinds(p, g, *COLLECTIVES, "accumulate")]
    return [lambda op=op: edit(op) for op in found] + [lambda op=op: fewer(op) for op in found if "+" in op.attrs["axis"]]


def communicates_another(p, g, r):
    found = of_kinds(p, g, *COLLECTIVES, "accumulate", "move", "pack", "unpack")
    return [reads_another(h, op, i, r) for h, op in found for i in range(len(op.ins))]


def packed_in_other_order(p, g, r):
    def edit(op):
        i, k = r.sample(range(len(op.ins)), 2)
        op.ins[i], op.ins[k] = op.ins[k], op.ins[i]
        return f"members {i} and {k} of {op.out[0]} are exchanged"
    return [lambda op=op: edit(op) for _, op in of_kinds(p, g, "pack") if len(op.ins) > 1]


def bucket_offset(p, g, r):
    def edit(h, op):
        offsets = [other.attrs.get("offset", "0") for _, other in of_kinds(p, g, "unpack") if other.ins == op.ins]
        old = op.attrs.get("offset", "0")
        new = r.choice([*(o for o in offsets if o != old), str(int(old) + 16), str(max(0, int(old) - 16))])
        if new == old:
            return None
        op.attrs["offset"] = new
        return f"unpack {op.out[0]} offset={new} for {old}"
    return [lambda h=h, op=op: edit(h, op) for h, op in of_kinds(p, g, "unpack")]


# -- Numbers and ops ---------------------------------------------------------------------------------------------------

def clip_norm_of_another(p, g, r):
    return [reads_another(h, op, 0, r) for h, op in of_kinds(p, g, "sum_squares") if op.ins] + [
        reads_another(h, op, i, r, "multi_tensor of sum_squares") for h, op in of_kinds(p, g, "multi_tensor")
        if any(o.kind == "sum_squares" for o in p.graph(op.callee).ops) for i in range(len(op.ins))]


def scales(p, g, r):
    def number(op, name):
        old = float(op.attrs[name])
        new = r.choice([x for x in (old * 2, old / 2, 0.0, old + 1, -old) if x != old])
        op.attrs[name] = repr(new) if "i64" not in op.attrs.get("to", "") else str(int(new))
        return f"{op.kind} {op.out[0]} {name}={op.attrs[name]} for {old}"

    def missing(h, op):
        passed_on(h, op, op.ins[0])
        return f"scale {op.out[0]} is missing"

    def twice(h, op):
        insert_after(h, op, op.kind, op.attrs)
        return f"scale {op.out[0]} is done twice"
    found = of_kinds(p, g, "scale", "offset")
    return ([lambda op=op: number(op, "by") for _, op in found] + [lambda h=h, op=op: missing(h, op) for h, op in found] +
            [lambda h=h, op=op: twice(h, op) for h, op in found] +
            [lambda op=op: number(op, "value") for _, op in of_kinds(p, g, "fill")
             if "value" in op.attrs and abs(float(op.attrs["value"])) < LARGE and "bool" not in op.attrs.get("to", "")])


def other_op(p, g, r):
    def edit(op, row):
        old, op.kind = op.kind, r.choice([kind for kind in row if kind != op.kind])
        return f"{op.kind} {op.out[0]} was {old}"
    return [lambda op=op, row=row: edit(op, row) for row in ALIKE for _, op in of_kinds(p, g, *row)]


def op_dropped(p, g, r):
    def edit(h, op, i):
        by = op.ins[i]
        passed_on(h, op, by)
        return f"{op.kind} {op.out[0]} is dropped: its readers get {by}"
    found = []
    for h, op in all_ops(p, g):
        if len(op.out) != 1 or op.kind in (*COLLECTIVES, "move", "accumulate", *SWAPS, "scale", "dropout", "noise"):
            continue
        types = h.before(op)
        found += [lambda h=h, op=op, i=i: edit(h, op, i) for i, name in enumerate(op.ins) if types[name].same(op.types[0])]
    return found


def rounding(p, g, r):
    """A value keeps its f32, or is rounded to another type on its way."""
    def kept(h, op):
        source = h.producer(op.ins[0])
        if not source or source.kind != "cast" or not h.before(op)[source.ins[0]].same(op.types[0]):
            return None
        passed_on(h, op, source.ins[0])
        return f"{op.out[0]} is not rounded to {source.attrs['to']}"

    def other(h, op):
        new = insert_after(h, op, "cast", {"to": r.choice(["bf16", "f16", "i64"])})
        new.types[0].type = new.attrs["to"] + new.types[0].type[3:]
        back = insert_after(h, new, "cast", {"to": "f32"})
        back.types[0].type = op.types[0].type
        split_elementwise(new)
        split_elementwise(back)
        return f"{op.out[0]} is rounded to {new.attrs['to']}"
    f32 = [(h, op) for h, op in all_ops(p, g) if op.types and op.types[0].dtype == "f32"]
    return [lambda h=h, op=op: kept(h, op) for h, op in f32 if op.kind == "cast"] * 4 + [
        lambda h=h, op=op: other(h, op) for h, op in r.sample(f32, min(8, len(f32)))]


def op_inserted(p, g, r):
    def edit(h, op):
        new = insert_after(h, op, "neg", {})
        split_elementwise(new)
        return f"neg after {op.out[0]}"
    return [lambda h=h, op=op: edit(h, op) for h, op in all_ops(p, g)
            if op.types and op.types[0].dtype.startswith(("f", "bf")) and not op.types[0].slots and op.kind not in SWAPS]


def reshaped(p, g, r):
    """An op reads its operand in another shape, in which it has an element of each place, too."""
    def edit(h, op, at):
        source = op.ins[at]
        new = copy.deepcopy(op)
        new.kind, new.callee, new.types = "reshape", None, [copy.deepcopy(h.before(op)[source])]
        dims = ",".join(map(str, new.types[0].dims[::-1]))
        new.attrs, new.types[0].type = {"shape": f"[{dims}]"}, f"{new.types[0].dtype}[{dims}]"
        new.out, new.ins = [h.new_name()], [source]
        new.words = [word for word in new.words if not word.startswith("split=")]
        h.ops.insert(h.ops.index(op), new)
        op.ins[at] = new.out[0]
        return f"{op.kind} {op.out[0]} reads {source} in the shape [{dims}]"

    def fits(h, op):
        dims = h.before(op)[op.ins[0]].dims
        if op.kind != "slice" or dims == dims[::-1]:
            return op.kind == "reshape" and dims != dims[::-1]
        ends = [a + b for a, b in zip(*(json.loads(op.attrs[name]) for name in ("starts", "shape")))]
        return all(end <= n for end, n in zip(ends, dims[::-1]))
    return [lambda h=h, op=op: edit(h, op, 0) for h, op in of_kinds(p, g, "slice", "reshape") if fits(h, op)]


def swapped(p, g, r):
    def operands(op, i, k):
        op.ins[i], op.ins[k] = op.ins[k], op.ins[i]
        return f"operands {i} and {k} of {op.kind} {op.out[0]} are swapped"

    def results(op, i, k):
        op.out[i], op.out[k] = op.out[k], op.out[i]
        return f"results {i} and {k} of {op.kind} {op.out[0]} are swapped"
    found = []
    for h, op in all_ops(p, g):
        if op.kind in ("pack", "max", "min", "and", "or", "equal"):
            continue
        commutes = op.kind in ("add", "mul")
        types = h.before(op)
        pairs = [(i, k) for i in range(len(op.ins)) for k in range(i) if op.ins[i] != op.ins[k] and not commutes and
                 types[op.ins[i]].same(types[op.ins[k]])]
        found += [lambda op=op, pair=pair: operands(op, *pair) for pair in pairs]
        pairs = [(i, k) for i in range(len(op.out)) for k in range(i) if op.types[i].same(op.types[k])]
        found += [lambda op=op, pair=pair: results(op, *pair) for pair in pairs]
    return found


def other_operand(p, g, r):
    def edit():
        ops = [op for op in g.ops if op.ins and op.kind not in (*COLLECTIVES, "move", "accumulate", "fused", "multi_tensor")]
        op = r.choice(ops)
        return reads_another(g, op, r.randrange(len(op.ins)), r)()
    return [edit] * 8


# -- The update --------------------------------------------------------------------------------------------------------

def optimizes(p, op):
    return op.kind in OPTIMIZERS or (op.callee and any(o.kind in OPTIMIZERS for o in p.graph(op.callee).ops))


def optimizer_operand(p, g, r):
    return [reads_another(g, op, i, r) for op in g.ops if optimizes(p, op) for i in range(len(op.ins))]


def hyperparameter(p, g, r):
    def edit(op, name):
        old = op.attrs.get(name)
        if old in ("true", "false"):
            del op.attrs[name]
        elif old is None:
            op.attrs[name] = "true" if name in ("decoupled", "nesterov", "onnx") else "0.25"
        else:
            op.attrs[name] = repr(float(old) * 0.5 + 0.03)
        return f"{op.kind} {op.out[0]} {name}={op.attrs.get(name)} for {old}"
    names = {"sgd": ["weight_decay"], "sgd_momentum": ["momentum", "dampening", "weight_decay", "nesterov"],
             "adam": ["beta1", "beta2", "eps", "weight_decay", "decoupled", "onnx"],
             "adagrad": ["lr_decay", "eps", "weight_decay"], "lamb": ["beta1", "beta2", "eps", "weight_decay"]}
    return [lambda op=op, name=name: edit(op, name) for _, op in of_kinds(p, g, *names) for name in names[op.kind]]


def updates(p, g, r):
    types = g.types()
    rows = [result for result in g.results if result.kind == "update"]

    def lost(row):
        g.results.remove(row)
        return f"the update of {row.of} is lost"

    def stays(row):
        row.value = row.of
        return f"{row.of} is not updated"

    def other(row):
        value = another(g, None, row.value, r, lambda name: name != row.of)
        if value is None:
            return None
        row.value = value
        return f"the update of {row.of} is {value}"

    def exchanged(row):
        like = [o for o in rows if o is not row and types[o.of].same(types[row.of])]
        if not like:
            return None
        o = r.choice(like)
        row.value, o.value = o.value, row.value
        return f"the updates of {row.of} and {o.of} are exchanged"
    return [lambda row=row, how=how: how(row) for row in rows for how in (lost, stays, other, exchanged)]


def outputs(p, g, r):
    rows = [result for result in g.results if result.kind == "output"]

    def other(row):
        value = another(g, None, row.value, r)
        if value is None:
            return None
        row.value = value
        return f"output {row.of} is {value}"

    def lost(row):
        g.results.remove(row)
        return f"output {row.of} is lost"

    def renamed(row):
        row.of = row.of[:-1] + '2"'
        return f"an output is called {row.of}"
    return [lambda row=row, how=how: how(row) for row in rows for how in (other, other, other, lost, renamed)]


# -- Attributes --------------------------------------------------------------------------------------------------------

def random_numbers(p, g, r):
    found = of_kinds(p, g, "dropout", "noise")
    keys = [op.attrs.get("key") for _, op in found]

    def key(op):
        others = [k for k in keys if k != op.attrs.get("key")]
        op.attrs["key"] = r.choice([*others, str(int(op.attrs.get("key", 0)) + 1)])
        return f"{op.kind} {op.out[0]} key={op.attrs['key']}"

    def ratio(op):
        name = "ratio" if op.kind == "dropout" else "scale"
        op.attrs[name] = repr(float(op.attrs.get(name, 0)) / 2 + 0.1)
        return f"{op.kind} {op.out[0]} {name}={op.attrs[name]}"

    def missing(h, op):
        passed_on(h, op, op.ins[0])
        return f"{op.kind} {op.out[0]} is missing"

    def piece(op, name):
        numbers = [int(n) for n in re.findall(r"\d+", op.attrs[name])]
        i = r.randrange(len(numbers))
        numbers[i] = max(0, numbers[i] + r.choice([-1, 1, numbers[i]]))
        new = f"[{','.join(map(str, numbers))}]"
        if new == op.attrs[name]:
            return None
        op.attrs[name] = new
        return f"{op.kind} {op.out[0]} {name}={new}"

    def scalars(op):
        op.ins[1], op.ins[2] = op.ins[2], op.ins[1]
        return f"{op.kind} {op.out[0]} has step and seed exchanged"
    return ([lambda op=op, how=how: how(op) for _, op in found for how in (key, key, ratio, scalars)] +
            [lambda h=h, op=op: missing(h, op) for h, op in found] +
            [lambda op=op, name=name: piece(op, name) for _, op in found for name in ("whole", "start") if name in op.attrs])


def flag(op, name):
    if op.attrs.get(name) == "true":
        del op.attrs[name]
    else:
        op.attrs[name] = "true"
    return f"{op.kind} {op.out[0]} {name}={op.attrs.get(name, 'false')}"


def causal(p, g, r):
    kinds = ["attention", "attention_back", "attention_packed", "attention_packed_back"]
    return [lambda op=op: flag(op, "causal") for _, op in of_kinds(p, g, *kinds)]


# Flags that a text does not show while they are false.
FLAGS = {"linear": ["trans"], "linear_back_w": ["trans"], "matmul": ["trans_a", "trans_b"], "attention": ["seq_major"],
         "attention_back": ["seq_major"], "cumsum": ["exclusive", "reverse"], "trilu": ["upper"],
         "lstm": ["reverse", "input_forget"], "lstm_back": ["reverse", "input_forget"],
         "gru": ["reverse", "linear_before_reset"], "gru_back": ["reverse"], "rnn": ["reverse"], "rnn_back": ["reverse"],
         "linear_bias": ["trans"],
         "cumprod": ["exclusive", "reverse"], "top_k": ["smallest"], "nms": ["scored", "center"], "noise": ["normal"],
         "linear_gelu_tanh": ["trans"], "linear_back_w_bias": ["trans"], "linear_back_w_accumulate": ["trans"]}


ACTIVATIONS = ['"sigmoid"', '"tanh"', '"relu"', '"softsign"']  # of recurrent layers


def attributes(p, g, r):
    """Every attribute that has no kind of its own."""
    known = {"axis", "shape", "by", "causal", "key", "ratio", "offset", "to", "from"}

    def edit(op, name):
        old = op.attrs[name]
        if old in ("true", "false"):
            return flag(op, name)
        if old.startswith("["):
            numbers = re.split(",", old[1:-1])
            i = r.randrange(len(numbers))
            if re.fullmatch(r"-?\d+", numbers[i]):
                numbers[i] = str(int(numbers[i]) + r.choice([-1, 1]))
            elif re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", numbers[i]):
                numbers[i] = repr(float(numbers[i]) * 1.5)
            else:
                return None
            new = f"[{','.join(numbers)}]"
        elif re.fullmatch(r"-?\d+", old):
            new = str(int(old) + r.choice([-1, 1]) if abs(int(old)) < LARGE else 3)
        elif re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", old):
            new = repr(float(old) * 1.5 + (0.5 if float(old) == 0 else 0))
        elif old in ACTIVATIONS:
            new = r.choice([word for word in ACTIVATIONS if word != old])
        else:
            return None
        op.attrs[name] = new
        return f"{op.kind} {op.out[0]} {name}={new} for {old}"
    found = []
    for _, op in all_ops(p, g):
        if op.kind in (*OPTIMIZERS, "fill", "call"):
            continue
        found += [lambda op=op, name=name: edit(op, name) for name, value in op.attrs.items()
                  if name not in known or (name == "axis" and not value.startswith('"'))]
        found += [lambda op=op, name=name: flag(op, name) for name in FLAGS.get(op.kind, []) if name not in op.attrs]
        if op.kind == "adam":
            found.append(lambda op=op: flag(op, "onnx"))
    return found


# -- Parameters and the mesh -------------------------------------------------------------------------------------------

def contents(p, g, r):
    def edit(param):
        old = param.rest
        if match := re.search(r'@ "[^"]*"\+(\d+)', old):
            start = match.start(1)
            param.rest = old[:start] + str(int(match[1]) + r.choice([4, 8, -4])) + old[match.end(1):]
        elif match := re.search(r"= (\w+)\(([^,)]*)", old):
            param.rest = old[:match.start(2)] + repr(float(match[2]) + 0.5) + old[match.end(2):]
        elif match := re.search(r"= (-?[\d.e+-]+)$", old):
            param.rest = old[:match.start(1)] + repr(float(match[1]) + 1)
        elif match := re.search(r"= \[([^,\]]*)", old):
            param.rest = old[:match.start(1)] + repr(float(match[1]) + 1) + old[match.end(1):]
        else:
            return None
        return f"{param.label} begins as{param.rest}, not as{old}"

    def exchanged(param):
        like = [o for o in g.params if o is not param and o.role == param.role and o.type.same(param.type)]
        if not like:
            return None
        other = r.choice(like)
        if r.random() < 0.5:
            param.label, other.label = other.label, param.label
            return f"the labels of {param.name} and {other.name} are exchanged"
        param.rest, other.rest = other.rest, param.rest
        return f"the contents of {param.name} and {other.name} are exchanged" if param.rest != other.rest else None

    def renamed(param):
        param.label = param.label[:-1] + '2"'
        return f"{param.name} has label {param.label}"
    labelled = [param for param in g.params if param.label]
    return [lambda param=param, how=how: how(param) for param in labelled for how in (exchanged, renamed)] + [
        lambda param=param: edit(param) for param in labelled if param.role in ("weight", "state")]


def frozen(p, g, r):
    def edit(param):
        if " train" in param.rest:
            param.rest = param.rest.replace(" train", "", 1)
        else:
            param.rest = " train" + param.rest
        return f"{param.label} is {'trained' if ' train' in param.rest else 'frozen'}"
    return [lambda param=param: edit(param) for param in g.params if param.role == "weight"]


def word_of_weight(word, roles):
    def candidates(p, g, r):
        def edit(param):
            if f" {word}" in param.rest:
                param.rest = param.rest.replace(f" {word}", "", 1)
                return f"{param.label} is not {word}"
            at = re.search(r" [@=] |$", param.rest).start()
            param.rest = f"{param.rest[:at]} {word}{param.rest[at:]}"
            return f"{param.label} is {word}"
        return [lambda param=param: edit(param) for param in g.params if param.role in roles]
    return candidates


def stored_shape(p, g, r):
    def edit(param):
        if match := re.match(r" as (\w+)\[([\d,]*)\]", param.rest):
            param.rest = param.rest[match.end():]
            return f"{param.label} is stored in its own shape"
        dims = param.type.dims
        if not dims:
            return None
        dims = dims[::-1] if dims != dims[::-1] else [*dims, 1]
        param.rest = f" as {param.type.dtype}[{','.join(map(str, dims))}]" + param.rest
        return f"{param.label}{param.rest}"
    return [lambda param=param: edit(param) for param in g.params if param.role == "weight"]


def splits(p, g, r):
    def split(op):
        marks = op.word("split")[1:-1].split(",")
        i = r.randrange(len(marks))
        letters = [m for m in ["-", "+", *re.findall(r"[^,\-+]", op.word("split")[1:-1]), "0", "n", "k", "a"] if m != marks[i]]
        old, marks[i] = op.word("split"), r.choice(letters)
        op.set_word("split", f"[{','.join(marks)}]")
        return f"{op.kind} {op.out[0]} split={op.word('split')} for {old}"

    def layout(name, type):
        i = r.randrange(len(type.layout))
        others = [x for x in ["B", "P", *(f"S({d})" for d in range(len(type.dims)))] if x != type.layout[i]]
        old, type.layout[i] = str(type), r.choice(others)
        return f"{name} has layout {type.layout}, not that of {old}"

    def mesh(name, type):
        others = [m for m in p.meshes() if m and m != type.mesh]
        if not others:
            return None
        old, type.mesh = type.mesh, r.choice(others)
        return f"{name} is on {type.mesh}, not on {old}"
    laid = [(param.name, param.type) for param in g.params] + [
        (name, type) for _, op in all_ops(p, g) for name, type in zip(op.out, op.types)]
    laid = [(name, type) for name, type in laid if type.layout]
    found = [lambda op=op: split(op) for _, op in all_ops(p, g) if op.word("split")]
    found += [lambda name=name, type=type: layout(name, type) for name, type in laid]
    return found + [lambda name=name, type=type: mesh(name, type) for name, type in r.sample(laid, min(8, len(laid))) if type.mesh]


def meshes(p, g, r):
    lines = [i for i, line in enumerate(p.head) if line.startswith("mesh ")]

    def change(i, new):
        if new == p.head[i]:
            return None
        old, p.head[i] = p.head[i], new
        return f"{new} for {old}"

    def devices(i):
        match = re.search(r"devices=(\S+)", p.head[i])
        numbers = []
        for part in match[1].split(","):
            low, _, high = part.partition("-")
            numbers += range(int(low), int(high or low) + 1)
        how = r.randrange(3)
        if how == 0 and len(numbers) > 1:
            a, b = r.sample(range(len(numbers)), 2)
            numbers[a], numbers[b] = numbers[b], numbers[a]
        elif how == 1:
            numbers[r.randrange(len(numbers))] = max(numbers) + 1
        else:
            numbers.append(max(numbers) + 1)
        return change(i, p.head[i].replace(match[0], "devices=" + ",".join(map(str, numbers))))

    def axes(i):
        match = re.search(r"\((.*)\)", p.head[i])
        parts = match[1].split(", ")
        how = r.randrange(3)
        if how == 0 and len(parts) > 1:  # names are exchanged, sizes stay
            a, b = r.sample(range(len(parts)), 2)
            names = [part.split("=") for part in parts]
            parts[a], parts[b] = f"{names[b][0]}={names[a][1]}", f"{names[a][0]}={names[b][1]}"
        elif how == 1:
            a = r.randrange(len(parts))
            parts[a] = parts[a].removesuffix(":time") if parts[a].endswith(":time") else parts[a] + ":time"
        else:
            a = r.randrange(len(parts))
            parts[a] = re.sub(r"=(\d+)", lambda m: f"={int(m[1]) + r.choice([-1, 1])}", parts[a])
        return change(i, p.head[i].replace(match[0], f"({', '.join(parts)})"))
    return [lambda i=i, how=how: how(i) for i in lines for how in (devices, axes)]


def module_words(p, g, r):
    """Words of the first line."""
    def edit(word):
        line = p.head[0]
        if word in line:
            p.head[0] = line.replace(f" {word}", "")
        else:
            p.head[0] = re.sub(r" phase=\w+", rf"\g<0> {word}", line)
        return f"{p.head[0]}"

    def phase():
        old = re.search(r"phase=(\w+)", p.head[0])[1]
        new = r.choice([name for name in ("typed", "sharded", "local", "planned") if name != old])
        p.head[0] = p.head[0].replace(f"phase={old}", f"phase={new}")
        return p.head[0]
    return [phase] + [lambda word=word: edit(word) for word in ("cross_barrier", "optimizer_in_backward", "early_updates")]


# -- Order and time ----------------------------------------------------------------------------------------------------

def neighbours(p, g, r):
    def edit(i):
        if set(g.ops[i].out) & set(g.ops[i + 1].ins):
            return None
        g.ops[i], g.ops[i + 1] = g.ops[i + 1], g.ops[i]
        return f"{g.ops[i + 1].out[0]} runs after {g.ops[i].out[0]}"
    return [lambda i=i: edit(i) for i in range(len(g.ops) - 1)]


def update_in_the_loop(p, g, r):
    """An op of the update, which reads sums over the micro-batches, runs before the last op of the loop.  Only the order of a
    planned program is that of a step."""
    if "phase=planned" not in p.head[0]:
        return []
    sums, after = {name for op in g.ops if op.kind == "accumulate" for name in op.out}, []
    for op in g.ops:
        if set(op.ins) & sums and op.kind != "accumulate":
            sums |= set(op.out)
            after.append(op)

    def edit(op):
        late = [other for other in g.ops[:g.ops.index(op)] if other.kind == "accumulate"]
        last = max(i for i, other in enumerate(g.ops) if set(other.out) & set(op.ins))
        late = [other for other in late if g.ops.index(other) > last]
        if not late:
            return None
        g.ops.remove(op)
        g.ops.insert(g.ops.index(late[0]), op)
        return f"{op.kind} {op.out[0]} runs before {late[0].out[0]} is accumulated"
    return [lambda op=op: edit(op) for op in after]


def part_of_step(p, g, r):
    def edit(op):
        old = op.part
        new = r.choice([x for x in ("forward", "backward", "update") if x != old])
        op.words = [w for w in op.words if w not in ("backward", "update")] + ([new] if new != "forward" else [])
        return f"{op.kind} {op.out[0]} is of {new}, not {old}"

    def number(op):
        old = op.word("of")
        op.set_word("of", int(old) + 1)
        return f"{op.kind} {op.out[0]} is of={int(old) + 1}, not {old}"
    return [lambda op=op: edit(op) for op in g.ops] + [lambda op=op: number(op) for op in g.ops if op.word("of")]


def origin(p, g, r):
    """Words of an op that name its origin, and the order or memory the plan wants it."""
    names = ["piece", "order", "recompute_group", "offload_group"]

    def other(op, name):
        old = op.word(name)
        op.set_word(name, r.choice([int(old) + 1, None]))
        return f"{op.kind} {op.out[0]} {name}={op.word(name)} for {old}"

    def put(op, name):
        op.words.append(f"{name}={r.choice([1, 2])}")
        return f"{op.kind} {op.out[0]} {name}={op.word(name)}"
    return ([lambda op=op, name=name: other(op, name) for op in g.ops for name in names if op.word(name)] * 2 +
            [lambda op=op, name=name: put(op, name) for op in r.sample(g.ops, min(20, len(g.ops))) for name in names
             if not op.word(name)])


def lost(p, g, r):
    def graph():
        p.graphs.remove(g)
        return f"{g.name} is lost"

    def entry():
        g.entry = ""
        return f"{g.name} is no entry"

    def param(value):
        g.params.remove(value)
        return f"{value.name} is lost"

    def more(op):
        g.ops.remove(op)
        return f"{op.kind} {op.out[0]} is lost"
    unused = [op for op in g.ops if not any(g.readers(name) for name in op.out)]
    return [graph, entry] + [lambda v=v: param(v) for v in r.sample(g.params, min(4, len(g.params)))] + [
        lambda op=op: more(op) for op in unused]


def deferral(p, g, r):
    def edit(op):
        if "deferred" in op.words:
            op.words.remove("deferred")
            return f"{op.kind} {op.out[0]} is not deferred"
        op.words.append("deferred")
        return f"{op.kind} {op.out[0]} is deferred"
    return [lambda op=op: edit(op) for op in g.ops if op.part == "update"]


def stashes(p, g, r):
    def drop(op):
        passed_on(g, op, op.ins[0])
        return f"stash {op.out[0]} is dropped"
    found = [op for op in g.ops if op.kind == "stash"]
    return [lambda op=op: drop(op) for op in found] + [reads_another(g, op, 0, r) for op in found]


# -- Bodies of fused and multi_tensor ops ----------------------------------------------------------------------------------

def bodies(p, g, r):
    found = {b.name: b for b in p.bodies(g)}.values()

    def operand(h):
        op = r.choice([op for op in h.ops if op.ins])
        return reads_another(h, op, r.randrange(len(op.ins)), r, f"{h.name}: {op.kind}")()

    def kind(h):
        rows = [(op, row) for op in h.ops for row in ALIKE if op.kind in row]
        if not rows:
            return None
        op, row = r.choice(rows)
        old, op.kind = op.kind, r.choice([k for k in row if k != op.kind])
        return f"{h.name}: {op.kind} {op.out[0]} was {old}"

    def number(h):
        rows = [(op, name) for op in h.ops for name, value in op.attrs.items()
                if re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", value) and abs(float(value)) < LARGE]
        if not rows:
            return None
        op, name = r.choice(rows)
        whole = re.fullmatch(r"-?\d+", op.attrs[name])
        old, value = op.attrs[name], float(op.attrs[name])
        op.attrs[name] = str(int(value) + 1) if whole else repr(value * 1.5 if value else 0.5)
        return f"{h.name}: {op.kind} {op.out[0]} {name}={op.attrs[name]} for {old}"

    def result(h):
        row = r.choice(h.results)
        value = another(h, None, row.value, r)
        if value is None:
            return None
        row.value = value
        return f"{h.name} returns {value}"
    ways = [operand, operand, kind, number, result]
    return [lambda h=h, how=how: how(h) for h in found for how in ways if how is not operand or any(op.ins for op in h.ops)]


def callers(p, g, r):
    def other(op):
        mine = p.graph(op.callee)
        like = [h for h in p.graphs if not h.entry and h is not mine and len(h.params) == len(mine.params) and
                all(a.type.same(b.type) for a, b in zip(h.params, mine.params)) and len(h.results) == len(mine.results)]
        if not like:
            return None
        old, op.callee = op.callee, r.choice(like).name
        return f"{op.kind} {op.out[0]} runs {op.callee}, not {old}"
    found = [op for op in g.ops if op.callee]
    return [reads_another(g, op, i, r) for op in found for i in range(len(op.ins))] + [lambda op=op: other(op) for op in found]


@dataclasses.dataclass
class Kind:
    name: str
    candidates: Callable
    # What decides whether an accepted fault is a miss: `eval`, the numbers of a step by nnaot-eval; `run`, those of the
    # executable, since nnaot-eval knows no memory and no schedule; `always`, if a step shows nothing.
    judge: str = "eval"


KINDS = [
    Kind("collective dropped", dropped(COLLECTIVES)),
    Kind("accumulation dropped", dropped(["accumulate"])),
    Kind("move dropped", dropped(["move"])),
    Kind("one reader gets the operand of a collective", one_reader_early),
    Kind("another collective", other_collective),
    Kind("take_partial, as_partial", partial_sums),
    Kind("reduced twice, counted twice", reduced_twice),
    Kind("wrong axis (group)", wrong_axis),
    Kind("collective, pack or move of another value", communicates_another),
    Kind("bucket: members exchanged", packed_in_other_order),
    Kind("bucket: offset", bucket_offset),
    Kind("clip norm of another value", clip_norm_of_another),
    Kind("scale missing, twice, other; constants", scales),
    Kind("another reduction or op", other_op),
    Kind("addend or op dropped", op_dropped),
    Kind("op inserted", op_inserted),
    Kind("rounding", rounding),
    Kind("operand in another shape", reshaped),
    Kind("operands or results swapped", swapped),
    Kind("another operand of the same type", other_operand),
    Kind("optimizer: another operand", optimizer_operand),
    Kind("optimizer: hyperparameter", hyperparameter),
    Kind("update lost, missing, of another value", updates),
    Kind("output lost, of another value", outputs),
    Kind("random numbers: key, ratio, piece, missing", random_numbers),
    Kind("causal flag", causal),
    Kind("other attributes: flags, eps, ignored label", attributes),
    Kind("parameters: contents, labels", contents),
    Kind("parameters: frozen", frozen, judge="always"),
    Kind("parameters: each_slice", word_of_weight("each_slice", ["weight", "state"])),
    Kind("parameters: host", word_of_weight("host", ["weight", "state"])),
    Kind("parameters: whole", word_of_weight("whole", ["input"]), judge="always"),
    Kind("parameters: stored shape", stored_shape, judge="always"),
    Kind("split, layout, mesh of a value", splits),
    Kind("mesh: ranks and axes", meshes),
    Kind("words of the module", module_words),
    Kind("order of neighbours", neighbours, judge="run"),
    Kind("order: update in the loop", update_in_the_loop, judge="always"),
    Kind("part of the step, number of the op", part_of_step),
    Kind("origin: piece, order, groups", origin, judge="run"),
    Kind("graph, parameter or op lost", lost),
    Kind("deferred", deferral, judge="run"),
    Kind("stash", stashes),
    Kind("schedule: order on one rank", schedule_order, judge="run"),
    Kind("schedule: action lost or twice", schedule_actions, judge="run"),
    Kind("schedule: devices", schedule_devices, judge="run"),
    Kind("schedule: receives", schedule_receives, judge="run"),
    Kind("schedule: segment", segments, judge="run"),
    Kind("memory: place", places, judge="run"),
    Kind("memory: slots", slots, judge="run"),
    Kind("swap ops, host copies", swaps, judge="run"),
    Kind("body: operation, constant, operand, result", bodies),
    Kind("fused op reads another value, runs another body", callers),
]
