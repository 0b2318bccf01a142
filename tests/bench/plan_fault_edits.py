"""Edits of distributed programs that kinds of faults share: see plan_fault_kinds.py."""

import copy
import re

COLLECTIVES = ["all_reduce", "all_gather", "local_slice", "reduce_scatter", "all_to_all"]
OPTIMIZERS = ["sgd", "sgd_momentum", "adam", "adagrad", "lamb", "lamb_apply"]
# Ops of a row have the same operands and attributes, so each can stand for another.
ALIKE = [["add", "sub", "mul", "div", "max", "min"], ["reduce_sum", "reduce_max", "reduce_min", "reduce_prod"],
         ["scale", "offset"], ["scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max"], ["cumsum", "cumprod"],
         ["relu", "neg", "exp", "tanh", "sigmoid", "gelu", "gelu_tanh", "sqrt", "abs", "reciprocal"],
         ["relu_back", "tanh_back", "sigmoid_back", "gelu_back", "gelu_tanh_back"], ["and", "or"],
         ["equal", "less", "greater"], ["softmax", "log_softmax"], ["arg_max", "arg_min"]]
SWAPS = ["swap_out", "swap_in", "swap_wait"]
LARGE = 1 << 40  # larger numbers are markers, such as an ignored label that no label has


def all_ops(p, g):
    """Returns (graph, op) of a graph and the bodies that it runs."""
    return [(h, op) for h in [g, *{b.name: b for b in p.bodies(g)}.values()] for op in h.ops]


def of_kinds(p, g, *kinds):
    return [(h, op) for h, op in all_ops(p, g) if op.kind in kinds]


def passed_on(h, op, by):
    """Removes an op whose result is `by` for its readers."""
    h.replace(op.out[0], by)
    h.ops.remove(op)


def another(h, op, value, r, wanted=lambda name: True):
    """Returns a random value that `op` may read instead of `value`, of its type and layout; None if there is none."""
    types = h.before(op) if op else h.types()
    found = [name for name, type in types.items() if name != value and type.same(types[value]) and wanted(name)]
    return r.choice(found) if found else None


def reads_another(h, op, i, r, what=None):
    """A candidate: operand i of an op is another value of its type."""
    def edit():
        value = another(h, op, op.ins[i], r)
        if value is None:
            return None
        old, op.ins[i] = op.ins[i], value
        return f"{what or op.kind} {op.out[0] if op.out else ''} reads {value} for {old}"
    return edit


def size_of(p, mesh, axis):
    """Returns the number of ranks of the word of an attribute `axis`, such as "dp+tp" with its quotes."""
    n, sizes = 1, p.meshes().get(mesh, {})
    for name in axis.strip('"').split("+"):
        n *= sizes.get(name, (1, False))[0]
    return n


def insert_after(h, op, kind, attrs):
    """Adds an op of one operand, the result of `op`, which all readers of that get instead; without a split."""
    new = copy.deepcopy(op)
    new.kind, new.callee, new.attrs, new.types = kind, None, dict(attrs), new.types[:1]
    new.out, new.ins = [h.new_name()], [op.out[0]]
    new.words = [word for word in new.words if not word.startswith("split=")]
    h.replace(op.out[0], new.out[0])
    h.ops.insert(h.ops.index(op) + 1, new)
    return new


def split_elementwise(op):
    """Gives an elementwise op the split that its layout follows from."""
    marks = {"P": "+", "B": "-"}
    if op.types[0].layout:
        op.words.insert(0, f"split=[{','.join(marks.get(x, re.sub(r'[^0-9]', '', x)) for x in op.types[0].layout)}]")


def set_layout(p, type, axis, to):
    """Sets the layout of a type along one axis."""
    if type.layout:
        type.layout[list(p.meshes()[type.mesh]).index(axis.strip('"'))] = to
