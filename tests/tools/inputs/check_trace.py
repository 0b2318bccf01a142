"""check_trace.py TRACE.json SUMMARY.json: a predicted timeline agrees with the summary."""

import json
import pathlib
import sys

trace, summary = (json.loads(pathlib.Path(p).read_text()) for p in sys.argv[1:3])
events, ranks = trace["traceEvents"], summary["per_rank"]
# The fourth exists with a schedule, the last two with swaps.
THREADS = ["operations", "communication", "segments", "moves", "to host memory", "from host memory"]


def seconds_of(list_):
    """The time in which any of them runs."""
    took = end = 0
    for e in sorted(list_, key=lambda e: e["ts"]):
        took += max(0, e["ts"] + e["dur"] - max(e["ts"], end))
        end = max(end, e["ts"] + e["dur"])
    return took


names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
assert names == {r: f"rank {r}" for r in range(len(ranks))}, names
for r in names:
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == r}
    swaps = any(said["host_bytes"] for said in ranks)
    assert {t: THREADS[t] for t in threads} == threads and {0, 1, 2} <= threads.keys() <= set(range(6)), threads
    assert {4, 5} <= threads.keys() if swaps else not {4, 5} & threads.keys(), threads

spans = [e for e in events if e["ph"] == "X"]
end = max(e["ts"] + e["dur"] for e in spans)
assert abs(end - 1e3 * summary["predicted_step_ms"]) < 0.01, (end, summary["predicted_step_ms"])
for r, said in enumerate(ranks):
    mine = [[e for e in spans if (e["pid"], e["tid"]) == (r, t)] for t in range(6)]
    for thread, list_ in zip(THREADS, mine):
        for one, next_ in zip(list_, list_[1:]):
            assert one["ts"] + one["dur"] <= next_["ts"] + 0.002, (thread, one, next_)
    for key, list_ in ("compute_ms", mine[0]), ("comm_ms", mine[1] + mine[3]):
        took = seconds_of(list_)
        # Each event is rounded to a nanosecond.
        assert abs(took - 1e3 * said[key]) < 0.001 * (len(list_) + 1), (r, key, took, said[key])
    # Each copy to host memory has a copy back.
    assert len(mine[4]) == len(mine[5]) and bool(mine[4]) == bool(said["host_bytes"]), (r, len(mine[4]), len(mine[5]))
    # An op of a micro-batch runs within a segment of it.
    for e in mine[0]:
        if "micro_batch" not in e["args"]: continue
        assert any(s["args"]["micro_batch"] == e["args"]["micro_batch"] and s["ts"] <= e["ts"] + 0.002 and
                   e["ts"] + e["dur"] <= s["ts"] + s["dur"] + 0.002 for s in mine[2]), e
    memory = [sum(e["args"].values()) for e in events if e["ph"] == "C" and e["pid"] == r]
    if said["peak_bytes"] is None:
        assert not memory
        continue
    # Offsets may leave gaps.
    assert 0.9 * said["peak_bytes"] <= max(memory) <= said["peak_bytes"], (r, max(memory), said["peak_bytes"])
    # The next step begins with the values that this one leaves, and with its rows.
    assert min(memory) >= 0
