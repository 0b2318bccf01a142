"""check_manifest.py M.json M.csv"""

import json
import sys

sends = json.load(open(sys.argv[1]))
rows = [line.strip().split(",") for line in open(sys.argv[2])]
assert sends and len(sends) == len(rows)
for send, row in zip(sends, rows):
    assert send["kind"] == "all_reduce" and send["groups"] == [[0, 1]]
    assert send["count"] == 1 and send["phase"] in ("begin", "micro", "update")
    assert row[:3] == ["allreduce", str(send["bytes"]), str(send["bytes"])] and row[7] == "2", row
    assert len(row) == 10
# The gradients of the sample's 11386 floats.
assert sum(send["bytes"] for send in sends) >= 4 * 11386
