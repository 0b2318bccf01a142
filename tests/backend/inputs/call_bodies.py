"""Writes a module that calls each body of a file:  call_bodies.py bodies.nn > calls.nn"""

import re
import sys

text = open(sys.argv[1]).read()
params, ops, results = [], [], []
for name, operands, body in re.findall(r"^graph @(\w+) \((.*?)\) \{\n(.*?)^\}", text, re.M | re.S):
    types = re.findall(r"(\w+\[[\d,]*\])", operands)
    names = [f"%{name}.{i}" for i in range(len(types))]
    params += [f'{v}: {t} weight "{v[1:]}" = 0' for v, t in zip(names, types)]
    n = len(re.search(r"return (.*)", body)[1].split(","))
    made = [f"%{name}.r{i}" for i in range(n)]
    # A call without operands would read a name after it as one: it is the last.
    ops.insert(0 if names else len(ops), f"  {', '.join(made)} = fused @{name} {', '.join(names)}".rstrip())
    results += [f'output "{v[1:]}" {v}' for v in made]
head, rest = text.split("\n", 1)
print(head, "\n\ngraph @main entry (\n  " + ",\n  ".join(params) + "\n) {\n" + "\n".join(ops))
print("  return " + ", ".join(results) + "\n}\n" + rest)
