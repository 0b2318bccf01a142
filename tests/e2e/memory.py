"""The resident memory of ranks, as executables count it, equals nnaot's prediction.

    memory.py [PLAN ...]       plans of the samples' gpt2, every kind of schedule among them

With --memory an executable watches the pages of its slabs (rt/memory_watch.c), without knowledge of the compiler's live
ranges.  For each rank two numbers agree within 2 %:

    in use     the most that was resident at once, with the memory peak predicted by nnaot's --trace
    touched    all that was ever touched, with `peak_bytes` of --summary: the size of a slab, gaps between values included

Tokens are random over the whole vocabulary: table rows that are never looked up are not resident.
"""

import array
import json
import pathlib
import random
import struct
import sys

from common import NNAOT, SAMPLES, compile_in_a_hurry, run, scratch

LIMIT, WORDS, TOKENS = 0.02, 256, 1 << 14
# Plan, ranks, micro-batches of 32 rows, more flags.
CASES = [("dp", 1, 1), ("dp", 2, 1), ("pp", 4, 8), ("pp_gpipe", 4, 8), ("pp_zb_h1", 4, 8),
         ("pp_zb_h2", 4, 8), ("pp_search", 4, 8), ("pp_pipedream", 4, 8, "--freeze", "wte.weight"),
         ("pp_interleaved=2,dp=2", 4, 8), ("pp_zb_v=2", 2, 8), ("pp_terapipe", 4, 4), ("pp_terapipe", 4, 1),
         ("pp=2,tp=2,dp=2", 8, 4), ("dp=2,recompute=1", 2, 1), ("tp=2,recompute=1", 2, 1),
         ("pp=4,recompute=1", 4, 8), ("coshard=2", 2, 1),
         ("cross_barrier", 2, 1), ("cross_barrier", 2, 4), ("dp=2,recompute=1,cross_barrier=1", 2, 1),
         ("coshard=2,recompute=1", 2, 1), ("coshard=2,recompute_pieces=1", 2, 1)]
# The same, with optimizer states.
WITH_STATES = [("zero1", 4, 1), ("optimizer_in_backward", 1, 1), ("dp=2,recompute=1,optimizer_in_backward=1", 2, 1),
               ("offload", 1, 1), ("swap=1,offload=1", 1, 1), ("zero3=2,offload=1", 2, 1), ("pp=4,offload=1", 4, 4),
               ("zero2=2,offload_gradients=1", 2, 4), ("pp_zb_h1=4,offload_gradients=1,offload=1", 4, 8)]


def write_tokens(path):
    rng = random.Random(1)
    head = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({TOKENS},), }}"
    head += " " * (-(10 + len(head) + 1) % 64) + "\n"
    tokens = array.array("q", [rng.randrange(WORDS) for _ in range(TOKENS)])
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + tokens.tobytes())


def predicted(trace):
    """Returns the peaks of each rank, from the counters of a predicted timeline."""
    most = {}
    for e in json.loads(trace.read_text())["traceEvents"]:
        if e["ph"] == "C" and e["name"] == "memory":
            most[e["pid"]] = max(most.get(e["pid"], 0), sum(e["args"].values()))
    return most


def one_case(folder, optimizer, plan, ranks, micro_batches, *flags):
    at = {n: folder / n for n in ("exe", "tokens.npy", "summary", "trace", "memory")}
    run(NNAOT, SAMPLES / "gpt2" / "gpt2.onnx", "-g", ranks, "--batch", 32, "--micro-batches", micro_batches, "--plan", plan,
        "--loss", "next_token(logits,input_ids)", "--optimizer", optimizer, "--summary", at["summary"],
        "--trace", at["trace"], *flags, "-o", at["exe"])
    run(at["exe"], "--tokens", f"input_ids={at['tokens.npy']}", "--steps", 2, "--memory", at["memory"])
    want, slabs = predicted(at["trace"]), [r["peak_bytes"] for r in json.loads(at["summary"].read_text())["per_rank"]]
    counted = json.loads(at["memory"].read_text())["per_rank"]
    if not len(want) == len(slabs) == len(counted) == ranks:
        sys.exit(f"{plan}: {ranks} ranks, {len(want)} predicted, {len(counted)} counted")
    in_use = [c["peak_bytes"] / want[r] - 1 for r, c in enumerate(counted)]
    touched = [c["touched_bytes"] / slab - 1 for c, slab in zip(counted, slabs)]
    part = min(c["peak_bytes"] / slab for c, slab in zip(counted, slabs))
    ok = all(abs(x) <= LIMIT for x in in_use + touched)
    print(f"{plan:24}{ranks:6}{max(c['peak_bytes'] for c in counted):12}{max(in_use, key=abs):+9.1%}"
          f"{max(slabs):12}{max(touched, key=abs):+9.1%}{part:10.1%}{'' if ok else '  FAILED'}", flush=True)
    return ok


def main(plans):
    print(f"{'plan':24}{'ranks':>6}{'in use':>12}{'worst':>9}{'slab':>12}{'touched':>9}{'in use of':>10}")
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        write_tokens(folder / "tokens.npy")
        cases = [("sgd", *case) for case in CASES] + [("adamw", *case) for case in WITH_STATES]
        return not all([one_case(folder, *case) for case in cases if not plans or case[1] in plans])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
