"""check_summary.py FILE.json RANKS PHASE: the keys of --summary, and that known numbers are not null."""

import json
import sys

path, ranks, planned = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "planned"
s = json.load(open(path))
keys = {"ranks", "plan_hash", "cluster", "predicted_step_ms", "per_rank", "comm_bytes", "bubble_fraction", "fold", "solver",
        "seconds", "stages"}
assert keys <= s.keys(), keys - s.keys()
assert s["ranks"] == ranks and len(s["per_rank"]) == ranks
assert len(s["plan_hash"]) == 16 and int(s["plan_hash"], 16) > 0
assert s["fold"].keys() >= {"ops_before", "ops_after", "unique_blocks"}
# Nothing repeats in it, whatever the plan does with it.
assert s["fold"]["unique_blocks"] == 0 and s["fold"]["ops_before"] == s["fold"]["ops_after"] > 0
assert s["solver"].keys() >= {"status", "gap", "ended", "seconds"}
assert {"simplify", "autodiff"} <= s["seconds"].keys()
for rank in s["per_rank"]:
    assert rank.keys() >= {"peak_bytes", "compute_ms", "comm_ms", "idle_ms"}
    # The weights of the sample are 11386 floats.
    assert rank["peak_bytes"] > 4 * 11386 if planned else rank["peak_bytes"] is None
    times = [rank["compute_ms"], rank["comm_ms"], rank["idle_ms"]]
    if planned:
        # Ranks with equal work never wait for one another.
        assert times[0] > 0 and times[1] > 0 and times[2] == 0
        assert max(times) < s["predicted_step_ms"] <= sum(times) + 1e-5
    else:
        assert times == [None] * 3
(stage,) = s["stages"]
assert stage["devices"] == list(range(ranks))
# Ops of the model only: no gradients, no updates, no communication of the loss.
assert " = linear %x, " in stage["first_op"]
assert (" = fused " if planned else " = scale ") in stage["last_op"] and " : f32[]" in stage["last_op"]
if planned:
    assert stage["mesh"] == {"acc": 2, "dp": 2}
    # Gradients of all weights, and the loss, on two ranks.
    assert s["comm_bytes"]["all_reduce"] >= 2 * 4 * 11386 and s["bubble_fraction"] == 0
    assert s["cluster"] == "cpu"
else:
    assert s["comm_bytes"]["all_reduce"] is None and s["bubble_fraction"] is None
    assert s["cluster"] is None and s["predicted_step_ms"] is None
