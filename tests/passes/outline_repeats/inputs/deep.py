"""Graphs that call one another twice:  deep.py N"""

import sys

n = int(sys.argv[1])
print('module phase=typed\n\ngraph @main entry (%x: f32[4] input "x") {\n  %y = call @g0 %x\n  return output "y" %y\n}')
for i in range(n):
    print(f"graph @g{i} (%x: f32[4]) {{\n  %y = call @g{i + 1} %x\n  %z = call @g{i + 1} %y\n  return %z\n}}")
print(f"graph @g{n} (%x: f32[4]) {{\n  %y = relu %x\n  return %y\n}}")
