"""check_prices.py NNAOT SAMPLES FOLDER: the terms of a step's price add up to the seconds of its rank, and say by which figure
each was priced."""

import json
import pathlib
import subprocess
import sys

nnaot, samples, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
folder.mkdir(exist_ok=True)
GPT = [samples / "gpt2/gpt2.onnx", "--loss", "next_token(logits,input_ids)", "--batch", "512"]
SCHEMA = json.loads((pathlib.Path(__file__).parents[3] / "docs/schemas/summary.schema.json").read_text())
FIGURES = SCHEMA["$defs"]["term"]["properties"]["by"]["enum"]
WIDE = [folder / "wide.nn", "--loss", "mse(z)"]
WIDE[0].write_text("""module phase=typed

graph @main entry (%x: f32[8192,4096] input "x", %w: f32[4096,4096] weight "w" train = normal(0,0.1)) {
  %y = linear %x, %w : f32[8192,4096]
  %z = relu %y : f32[8192,4096]
  return output "z" %z
}
""")


def cluster(fields, like="h100:2x2"):
    file = folder / "cluster.lua"
    file.write_text(f'return {{like = "{like}", {fields}}}')
    return str(file)


def prices(model, where, ranks, *options):
    """Returns the terms by what and figure, after checking their sums."""
    summary = folder / "s.json"
    subprocess.run([nnaot, *model, "-g", str(ranks), "--cluster", where, *options, "--emit", "plan", "-o", "/dev/null", "--summary",
                    summary], check=True, stderr=subprocess.DEVNULL)
    s = json.loads(summary.read_text())
    terms, rank = s["prices"]["terms"], s["per_rank"][s["prices"]["rank"]]
    eps = 1e-6 * (len(terms) + 1)  # figures have six decimals
    assert rank["compute_ms"] == max(r["compute_ms"] for r in s["per_rank"])
    compute = sum(t["ms"] for t in terms if t["what"] in ("kernels", "launches"))
    assert abs(compute - rank["compute_ms"]) <= eps + 1e-9 * compute, (options, compute, rank)
    comm = sum(t["ms"] for t in terms if "nodes" in t)
    assert comm >= rank["comm_ms"] - eps, (options, comm, rank)
    if "pp" not in str(options): assert abs(comm - rank["comm_ms"]) <= eps, (options, comm, rank)
    for t in terms:
        assert t["by"] in FIGURES, t
        # No ring of NCCL costs less; a tree may.
        if t["by"] == "ring" and t["algorithm"] == "ring": assert t["nccl_ms"] >= t["ms"] - eps, t
        if t["by"] == "nccl": assert t["nccl_ms"] == t["ms"], t
        assert ("algorithm" in t) == (t["by"] in ("ring", "nccl")), t
    keys = [(t["what"], t["by"], t.get("nodes"), t.get("algorithm"), t.get("protocol")) for t in terms]
    assert len(set(keys)) == len(keys)
    return s, keys


def by(keys, what):
    return {figure for name, figure, *_ in keys if name == what}


# Types and figures of arithmetic.
assert by(prices(WIDE, "h100:1x2", 2, "--plan", "dp")[1], "kernels") == {"f32 peak", "memory_speed"}
bf16 = ("--plan", "dp", "--dtype", "bf16", "--optimizer", "adamw")
for fields, figure in [("", "16-bit peak"), ("half_efficiency = 0.7", "half_efficiency"),
                       ("products = {{flops = 1e12, half = 5e14}}", "products"),
                       ("memory_speed = 1e15, dispatch = 1e-2", "dispatch")]:
    assert figure in by(prices(WIDE, cluster(fields), 2, *bf16)[1], "kernels"), figure
assert "attention_efficiency" in by(prices(GPT, cluster("attention_efficiency = 0.01, half = 1e13", "h100:1x4"), 4, *bf16)[1], "kernels")
assert by(prices(WIDE, "cpu:1x2", 2, "--plan", "dp")[1], "kernels") >= {"f32 peak"}

# Transfers: within nodes, across them, in both steps; by NCCL's choice if the cluster says so, with its protocols.
s, keys = prices(GPT, "h100:2x2", 4, "--plan", "dp")
assert {k[2] for k in keys if k[0] == "all_reduce"} <= {1, 2} and (2 in {k[2] for k in keys})
total = sum(t["bytes"] for t in s["prices"]["terms"] if t["what"] == "all_reduce")
assert 4 * total == s["comm_bytes"]["all_reduce"], (total, s["comm_bytes"])
keys = prices(GPT, cluster("nccl = true"), 4, "--plan", "dp")[1]
assert {("all_reduce", "nccl")} == {k[:2] for k in keys if k[0] == "all_reduce"}
large = prices(WIDE, cluster("nccl = true, nvls = true", "h100:1x4"), 4, "--plan", "dp")[1]
assert ("all_reduce", "nccl", 1, "nvls", "simple") in large, large
across = prices(WIDE, cluster("nccl = true", "h100:4x1"), 4, "--plan", "dp")[1]
assert {k[3:] for k in across if k[0] == "all_reduce"} <= {(a, p) for a in ("ring", "tree") for p in ("ll", "ll128", "simple")}

# The ring of few bytes among many nodes costs more than NCCL's tree.
s, keys = prices(GPT, "h100:16x1", 16, "--plan", "dp")
trees = [t for t in s["prices"]["terms"] if t.get("algorithm") == "tree"]
assert trees and all(t["nccl_ms"] < t["ms"] for t in trees), s["prices"]

# Micro-batches, stages, sharded states, deferred updates, offloading.
s, keys = prices(GPT, "h100:2x2", 4, "--plan", "pp=2,dp=2", "--micro-batches", "4")
assert ("move", "messages", 2, None, None) in keys, keys
prices(GPT, "h100:1x4", 4, "--plan", "zero1", "--micro-batches", "4", "--dtype", "f16", "--optimizer", "adamw")
prices(GPT, "h100:1x4", 4, "--plan", "zero3", "--accumulate", "2")
prices(GPT, "cpu:1x4", 4, "--plan", "cross_barrier=4", "--optimizer", "adamw")
assert ("copies", "host", None, None, None) in prices(GPT, "h100:1x2", 2, "--plan", "dp=2,swap=1")[1]

# The devices of a node share its links to host memory.
def copies(fields):
    terms = prices(GPT, cluster("host = 50e9" + fields, "h100:1x2"), 2, "--plan", "dp=2,swap=1")[0]["prices"]["terms"]
    return sum(t["ms"] for t in terms if t["what"] == "copies")


assert abs(copies(", host_node = 25e9") / copies("") - 4) < 1e-3
print("equal")
