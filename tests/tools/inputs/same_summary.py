"""Checks that two summaries are of the same step, and of passes and proofs that ran:  same_summary.py ONE OTHER"""

import json
import sys


def main():
    one, other = (json.load(open(path)) for path in sys.argv[1:])
    for key in "plan_hash", "predicted_step_ms", "per_rank", "comm_bytes", "micro_batches":
        if one[key] != other[key]:
            sys.exit(f"{key} differs")
    if set(one["seconds"]) - {"choose"} != set(other["seconds"]):
        sys.exit("other passes have seconds")
    if not one["seconds"]["prove"] > 0:
        sys.exit("no proof ran")


main()
