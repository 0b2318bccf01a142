"""check_predictions.py FOLDER: of one model on more ranks, faster devices, or in stages."""

import json
import pathlib
import sys

one, two, four, h100, stages = (json.loads((pathlib.Path(sys.argv[1]) / f"{name}.json").read_text())
                                for name in ["1", "2", "4", "h100", "pp"])


def times(summary, what):
    return [rank[what] for rank in summary["per_rank"]]


# More ranks: each computes less, and all communicate.
compute = [times(s, "compute_ms")[0] for s in (one, two, four)]
assert compute[0] > compute[1] > compute[2] > compute[0] / 4, compute
assert times(one, "comm_ms") == [0] and min(times(four, "comm_ms")) > 0
for s in (one, two, four):
    assert len(set(times(s, "compute_ms"))) == 1 and s["bubble_fraction"] == 0 and s["cluster"] == "cpu"
    assert s["predicted_step_ms"] <= times(s, "compute_ms")[0] + times(s, "comm_ms")[0] + 1e-5
assert h100["cluster"] == "h100:1x4" and h100["predicted_step_ms"] < four["predicted_step_ms"]

# In stages a rank computes, communicates, does both, or waits.
step = stages["predicted_step_ms"]
for rank in stages["per_rank"]:
    busy = [rank["compute_ms"], rank["comm_ms"]]
    assert max(busy) + rank["idle_ms"] <= step + 1e-5 <= sum(busy) + rank["idle_ms"] + 2e-5
idle = sum(times(stages, "idle_ms"))
assert idle > 0 and abs(stages["bubble_fraction"] - idle / (4 * step)) < 1e-4
