"""many_calls.py CALLS: a module with a chain of so many transposes, and sums of some of them over the rows.

No three neighbouring parts are equal (the sequence of Thue and Morse), so none becomes a loop.
"""

import sys

n = int(sys.argv[1])
print("module phase=typed\n\ngraph @train entry (%x: f32[8,6] input \"x\") {")
last, rows, sums = "%x", 0, []
for i in range(n):
    rows = 1 - rows
    print(f"  %t{i} = transpose {last} perm=[1,0]")
    last = f"%t{i}"
    if i % 2 and (i // 2).bit_count() % 2:
        sums.append(i)
        print(f"  %s{i} = reduce_sum {last} axes=[{rows}]")
results = ", ".join(f'output "s{i}" %s{i}' for i in sums)
print(f"  return {results}\n}}")
