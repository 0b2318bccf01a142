"""sent.py FILE.json: prints the elements of 4 bytes that a rank sends in a step, in units of 2^30, from a --comm-manifest."""

import json
import sys

total = 0
for c in json.load(open(sys.argv[1])):
    n = len(c["groups"][0])
    total += (2 if c["kind"] == "all_reduce" else 1) * (n - 1) / n * c["bytes"] / 4 * c["count"]
print(f"{total / 2**30:g}")
