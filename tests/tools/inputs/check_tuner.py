"""check_tuner.py M.json M.csv: a row for each kind, bytes and ranks"""

import json
import sys

NCCL = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter"}

sends = json.load(open(sys.argv[1]))
rows = [line.strip().split(",") for line in open(sys.argv[2])]
kinds = [(NCCL[s["kind"]], str(s["bytes"]), str(len(s["groups"][0]))) for s in sends if s["kind"] in NCCL]
assert len(set(kinds)) < len(kinds)
assert len(rows) == len(set(kinds))
assert {(row[0], row[1], row[7]) for row in rows} == set(kinds)
