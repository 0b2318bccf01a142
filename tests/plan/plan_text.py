"""Reads the text of a module, so that tests can change one thing of a distributed program and write it again.

The classes hold words: a layout is a list of entries, an attribute a word.  All that nnaot prints can be read; aligned
columns and blank lines are lost.

    p = Program(path.read_text())
    for op in p.entry().ops: ...
    str(p)
"""

import copy
import re

NAME = r'%(?:"[^"]*"|[\w.]+)'
WORD = re.compile(r'\s*(\w+)=(x?"[^"]*"|\[[^\]]*\]|[^\s"\[]+)')
TYPE = re.compile(r'\s*(\w+\[[\d,]*\])(?: (@[\w.]+))?(?: \{([^}]*)\})?(?: at (\d+))?(?: slots=(\d+):(\d+))?')
OP = re.compile(rf'  (?:({NAME}(?:, {NAME})*) = )?(\w+)(?: (@[\w.]+))?((?:,? {NAME})*)')
PARAM = re.compile(rf'  ({NAME}):')
RESULT = re.compile(rf'(?:(output) ("[^"]*") |(update) ({NAME}) )?({NAME})$')


def without_comment(line):
    """Returns the line without its comment, and the comment."""
    quoted = False
    for i, c in enumerate(line):
        if c == '"':
            quoted = not quoted
        elif c == "#" and not quoted:
            return line[:i].rstrip(), line[i:]
    return line.rstrip(), ""


class Type:
    def __init__(self, match):
        self.type, self.mesh, layout, self.at, self.slots, self.slot_bytes = match.groups()
        self.layout = layout.split(", ") if layout else []

    def __str__(self):
        return (self.type + (f" {self.mesh}" if self.mesh else "") + (f" {{{', '.join(self.layout)}}}" if self.layout else "") +
                (f" at {self.at}" if self.at else "") + (f" slots={self.slots}:{self.slot_bytes}" if self.slots else ""))

    def same(self, other):
        """Whether values of both types are interchangeable for the reader of one."""
        return (self.type, self.mesh, self.layout) == (other.type, other.mesh, other.layout)

    @property
    def dims(self):
        return [int(n) for n in re.findall(r"\d+", self.type[self.type.index("["):])]

    @property
    def dtype(self):
        return self.type[:self.type.index("[")]


class Op:
    def __init__(self, line):
        text, self.comment = without_comment(line)
        match = OP.match(text)
        if not match:
            raise ValueError(f"no op: {line}")
        self.out = re.findall(NAME, match[1] or "")
        self.kind, self.callee = match[2], match[3]
        self.ins = re.findall(NAME, match[4])
        at, self.attrs = match.end(), {}
        while attr := WORD.match(text, at):
            self.attrs[attr[1]] = attr[2]
            at = attr.end()
        text = text[at:].strip()
        self.types, self.words = [], []
        if text.startswith(":"):
            at = 1
            while True:
                match = TYPE.match(text, at)
                if not match:
                    raise ValueError(f"no type in {line}")
                self.types.append(Type(match))
                at = match.end()
                if text[at:at + 1] != ",":
                    break
                at += 1
            text = text[at:]
        self.words = text.split()

    def __str__(self):
        return ("  " + (", ".join(self.out) + " = " if self.out else "") + self.kind + (f" {self.callee}" if self.callee else "") +
                (" " + ", ".join(self.ins) if self.ins else "") + "".join(f" {k}={v}" for k, v in self.attrs.items()) +
                (" : " + ", ".join(map(str, self.types)) if self.types else "") + "".join(" " + w for w in self.words) +
                (f"  {self.comment}" if self.comment else ""))

    def word(self, name):
        """Returns X of a word `name=X` after the types, or None."""
        return next((w[len(name) + 1:] for w in self.words if w.startswith(name + "=")), None)

    def set_word(self, name, value):
        """Replaces the word `name=X`; without a value, removes it."""
        self.words = [f"{name}={value}" if w.startswith(name + "=") else w for w in self.words
                      if value is not None or not w.startswith(name + "=")]

    @property
    def part(self):
        return next((w for w in self.words if w in ("backward", "update")), "forward")


class Param:
    def __init__(self, line):
        text, self.comment = without_comment(line)
        text = text.removesuffix(",")
        match = PARAM.match(text)
        if not match:
            raise ValueError(f"no parameter: {line}")
        self.name, type = match[1], TYPE.match(text, match.end())
        self.type = Type(type)
        match = re.match(r'\s*(\w+)(?: ("[^"]*"))?(.*)', text[type.end():])
        self.role, self.label, self.rest = match.groups() if match else ("", None, "")

    def text(self, last):
        return (f"  {self.name}: {self.type}" + (f" {self.role}" if self.role else "") + (f" {self.label}" if self.label else "") +
                self.rest + ("" if last else ",") + (f"  {self.comment}" if self.comment else ""))


class Result:
    def __init__(self, text):
        match = RESULT.match(text.strip())
        if not match:
            raise ValueError(f"no result: {text}")
        self.kind, self.of, self.value = match[1] or match[3] or "", match[2] or match[4] or "", match[5]

    def __str__(self):
        return " ".join(filter(None, [self.kind, self.of, self.value]))


class Graph:
    def __init__(self, head):
        self.name, self.entry = re.match(r"graph (@[\w.]+)( entry)?", head).groups()
        self.params, self.ops, self.results, self.runs = [], [], [], []

    def __str__(self):
        lines = [f"graph {self.name}{' entry' if self.entry else ''} ("]
        lines += [p.text(p is self.params[-1]) for p in self.params]
        lines += [") {", *map(str, self.ops)]
        if self.results:
            lines.append("  return " + ",\n         ".join(map(str, self.results)))
        return "\n".join([*lines, *self.runs, "}"])

    def types(self):
        """Returns the type of every value."""
        found = {p.name: p.type for p in self.params}
        for op in self.ops:
            found.update(zip(op.out, op.types))
        return found

    def before(self, op):
        """Returns the types of the values that an op may read."""
        found = {p.name: p.type for p in self.params}
        for other in self.ops:
            if other is op:
                break
            found.update(zip(other.out, other.types))
        return found

    def readers(self, value):
        """Returns (op or result, index of the operand) of every use."""
        found = [(op, i) for op in self.ops for i, name in enumerate(op.ins) if name == value]
        return found + [(r, None) for r in self.results if r.value == value]

    def replace(self, value, by):
        for user, i in self.readers(value):
            read(user, i, by)

    def producer(self, value):
        return next((op for op in self.ops if value in op.out), None)

    def new_name(self):
        return f"%fault{sum(len(op.out) for op in self.ops)}"


def read(user, i, value):
    """Makes an op read another value as operand i, or a result be it."""
    if i is None:
        user.value = value
    else:
        user.ins[i] = value


class Program:
    def __init__(self, text):
        self.head, self.graphs = [], []
        g, at = None, ""
        for line in text.splitlines():
            bare = without_comment(line)[0]
            if line.startswith("graph "):
                g = Graph(line)
                self.graphs.append(g)
                at = "ops" if bare.endswith("() {") else "params"
            elif not g:
                if bare:
                    self.head.append(bare)
            elif line.startswith(") {"):
                at = "ops"
            elif line.startswith("}"):
                g = None
            elif line.startswith("  run "):
                g.runs.append(bare)
            elif line.startswith("  return ") or at == "results":
                g.results.append(Result(bare.removeprefix("  return ").removesuffix(",")))
                at = "results"
            elif bare:
                (g.params if at == "params" else g.ops).append((Param if at == "params" else Op)(line))

    def __str__(self):
        return "\n".join(["\n".join(self.head), *map(str, self.graphs), ""])

    def copy(self):
        return copy.deepcopy(self)

    def graph(self, name):
        return next(g for g in self.graphs if g.name == name)

    def entries(self):
        return [g for g in self.graphs if g.entry]

    def bodies(self, g):
        """Returns the graphs that a graph calls, with theirs."""
        names = dict.fromkeys(op.callee for op in g.ops if op.callee)
        found = [self.graph(name) for name in names]
        return found + [inner for body in found for inner in self.bodies(body)]

    def meshes(self):
        """Returns the axes of every mesh, as {name: {axis: (size, whether of time)}}; the first is also that of None."""
        found = {}
        for line in self.head:
            if match := re.match(r"mesh (@[\w.]+) devices=\S+ \((.*)\)", line):
                axes = re.findall(r"([\w.]+)=(\d+)(:time)?", match[2])
                found[match[1]] = {name: (int(size), bool(time)) for name, size, time in axes}
                found.setdefault(None, found[match[1]])
        return found
