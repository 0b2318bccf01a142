"""many_loops.py LOOPS: a module with a chain of so many loops, each with a body of its own, and none or 6 transposes between them.

Each loop has a state, slices an operand, stacks a result and sums two others.  No three neighbouring parts are
equal (the sequence of Thue and Morse), so none becomes a loop over equal calls.
"""

import sys

n = int(sys.argv[1])
print("module phase=typed\n\ngraph @train entry (%x: f32[4,8,6] input \"x\" whole, %s: f32[6,6] input \"s\" whole) {")
last, results, transposes = "%s", [], 0
for i in range(n):
    print(f"  %a{i}, %y{i}, %b{i}, %c{i} = loop @step{i} {last}, %x count=4 carried=1 sliced=1 summed=2")
    last = f"%a{i}"
    results += [f'output "{name}{i}" %{name}{i}' for name in "ybc"]
    for _ in range(6 * (i.bit_count() % 2)):
        print(f"  %t{transposes} = transpose {last} perm=[1,0]")
        last = f"%t{transposes}"
        transposes += 1
print(f"  return {', '.join(results)}\n}}")
for i in range(n):
    print(f"\ngraph @step{i} (%state: f32[6,6], %slice: f32[8,6]) {{\n  %next = transpose %state perm=[1,0]\n"
          "  %turned = transpose %slice perm=[1,0]\n  %rows = reduce_sum %slice axes=[0]\n"
          "  %columns = reduce_sum %slice axes=[1]\n  return %next, %turned, %rows, %columns\n}")
