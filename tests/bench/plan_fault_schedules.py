"""Kinds of faults in schedules, memory and copies in host memory: see plan_fault_kinds.py."""

import re

from plan_fault_edits import SWAPS, passed_on, reads_another

# -- Schedules ---------------------------------------------------------------------------------------------------------

def actions(text):
    """Returns the actions of a run, with repetitions written out."""
    tokens = re.findall(r'get %(?:"[^"]*"|[\w.]+)|[()]|\*\d+|[\w.]+', text)
    stack, last = [[]], None
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            last = stack.pop()
            stack[-1] += last
        elif token.startswith("*"):
            stack[-1] += last * (int(token[1:]) - 1)
        else:
            last = [token]
            stack[-1] += last
    return stack[0]


def runs(p, g, r, edit):
    """Candidates: `edit` changes the actions of a run and describes that."""
    def one(i):
        head, _, rest = g.runs[i].strip().partition(" ")
        devices, _, rest = rest.partition(" ")
        found = actions(rest)
        said = edit(found)
        g.runs[i] = f"  {head} {devices} {' '.join(found)}"
        return said and f"{devices}: {said}"
    return [lambda i=i: one(i) for i in range(len(g.runs))] * 4


def schedule_order(p, g, r):
    def edit(found):
        places = [i for i in range(len(found) - 1) if found[i] != found[i + 1]]
        if not places:
            return None
        i = r.choice(places)
        k = i + 1 if r.random() < 0.7 else r.randrange(len(found))
        found[i], found[k] = found[k], found[i]
        return f"actions {i} and {k} are exchanged"
    return runs(p, g, r, edit)


def schedule_actions(p, g, r):
    def edit(found):
        i = r.randrange(len(found))
        if r.random() < 0.5:
            return f"{found.pop(i)} is lost"
        found.insert(r.randrange(len(found) + 1), found[i])
        return "an action runs twice"
    return runs(p, g, r, edit)


def schedule_devices(p, g, r):
    def edit(i):
        match = re.search(r"devices=(\S+)", g.runs[i])
        others = [run for run in range(len(g.runs)) if run != i]
        if others and r.random() < 0.6:
            k = r.choice(others)
            other = re.search(r"devices=(\S+)", g.runs[k])
            g.runs[i] = g.runs[i].replace(match[0], other[0])
            g.runs[k] = g.runs[k].replace(other[0], match[0])
            return f"{match[0]} and {other[0]} are exchanged"
        g.runs[i] = g.runs[i].replace(match[0], f"devices={r.randrange(4)}")
        return f"{g.runs[i][:40]} was of {match[0]}"
    return [lambda i=i: edit(i) for i in range(len(g.runs))]


def schedule_receives(p, g, r):
    def edit(found):
        gets = [i for i, action in enumerate(found) if action.startswith("get")]
        if not gets:
            return None
        i = r.choice(gets)
        moves = [op.out[0] for op in g.ops if op.kind == "move" and f"get {op.out[0]}" != found[i]]
        if r.random() < 0.5 and len(gets) > 1:
            k = r.choice(gets)
            found[i], found[k] = found[k], found[i]
            return "two receives are exchanged" if found[i] != found[k] else None
        if not moves:
            return None
        found[i] = f"get {r.choice(moves)}"
        return f"receives {found[i]}"
    return runs(p, g, r, edit)


def segments(p, g, r):
    names = sorted({op.word("segment") for op in g.ops if op.word("segment")})

    def edit(op):
        old = op.word("segment")
        new = r.choice([*(n for n in names if n != old), None])
        op.set_word("segment", new)
        return f"{op.kind} {op.out[0]} is in segment {new}, not {old}"

    def put(op):
        op.words.append(f"segment={r.choice(names)}")
        return f"{op.kind} {op.out[0]} is in a segment"
    return ([lambda op=op: edit(op) for op in g.ops if op.word("segment")] +
            [lambda op=op: put(op) for op in g.ops if names and not op.word("segment")])


# -- Memory ------------------------------------------------------------------------------------------------------------

def places(p, g, r):
    types = [(name, type) for name, type in g.types().items() if type.at]

    def move(name, type):
        old, others = type.at, [other.at for n, other in types if n != name]
        type.at = r.choice([r.choice(others), str(int(old) + 64), str(max(0, int(old) - 64)), "0"])
        return f"{name} at {type.at}, not {old}" if type.at != old else None

    def gone(name, type):
        type.at = None
        return f"{name} has no place"

    def slab():
        match = re.search(r"slab=(\d+)", p.head[0])
        p.head[0] = p.head[0].replace(match[0], f"slab={int(match[1]) - r.choice([1, 64, 1024])}")
        return p.head[0]
    if not types:
        return []
    return [lambda name=name, type=type: move(name, type) for name, type in types] + [
        lambda: gone(*r.choice(types))] + ([slab] if "slab=" in p.head[0] else [])


def slots(p, g, r):
    def edit(name, type):
        old = f"{type.slots}:{type.slot_bytes}"
        if r.random() < 0.6:
            type.slots = str(int(type.slots) - 1)
        else:
            type.slot_bytes = str(max(0, int(type.slot_bytes) - 64))
        return f"{name} has slots={type.slots}:{type.slot_bytes}, not {old}"

    def lost(name, type):
        type.slots = None
        return f"{name} has no slots"
    found = [(name, type) for name, type in g.types().items() if type.slots]
    return [lambda name=name, type=type, how=how: how(name, type) for name, type in found for how in (edit, edit, lost)]


def swaps(p, g, r):
    def drop(op):
        passed_on(g, op, op.ins[0])
        return f"{op.kind} {op.out[0]} is dropped"

    def other(op):
        op.kind = r.choice([kind for kind in SWAPS if kind != op.kind])
        return f"{op.kind} {op.out[0]} was of another kind"

    def place(op):
        old = op.types[0].at
        if not old:
            return None
        others = [o.types[0].at for o in g.ops if o.kind == op.kind and o.types[0].at != old]
        op.types[0].at = r.choice([*others, str(int(old) + 64)])
        return f"{op.kind} {op.out[0]} at {op.types[0].at}, not {old}"
    found = [op for op in g.ops if op.kind in SWAPS]
    return [lambda op=op, how=how: how(op) for op in found for how in (drop, other, place)] + [
        reads_another(g, op, i, r) for op in found for i in range(len(op.ins))]
