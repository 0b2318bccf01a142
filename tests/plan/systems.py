"""Parameters of a cluster that describe the system of a paper, each by what it adds to a predicted step:  systems.py

Without a parameter, and with its neutral value, the step takes what it takes in nnaot's runtime.  Expectations are sums over
the ops of the compiled program (`--emit nn`), not the simulation's.
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile

NNAOT = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot")
HOST, SPEED, FLOPS, SLICES, WIDTH, LAYERS = 16e9, 1e12, 2e13, 4, 1024, 6
CLUSTER = f"""return {{ nodes = 1, per_node = 4, inside = {{ alpha = 1e-6, beta = 1 / 50e9 }}, start = 5e-6, memory = 4e9,
  memory_speed = {SPEED}, f32 = 1e13, half = {FLOPS}, launch = 1e-6, host = {HOST}, %s }}
"""
NEUTRAL = ("prefetch = 0", "queues = 2", "dispatch = 0", "half_efficiency = 1", "half_efficiency = 0", "host_node = 0",
           "host_node = 4 * 16e9", "host_update = 0", "host_weights = false", "reserve = 0",
           "products = { { flops = 1e9, f32 = 1e13, half = 2e13 } }", "nccl = false", "nvls = true", "pat = true",
           "collectives = { { algorithm = 'ring', protocol = 'll', start = 1 } }", "half_comm = false",
           "blocking = false", "attention_efficiency = 0", "attention_efficiency = 0.1")  # there is no attention


def model(rows):
    """Products with a relu between them."""
    params = [f'%x0: f32[{rows},{WIDTH}] input "x"']
    params += [f'%w{i}: f32[{WIDTH},{WIDTH}] weight "w{i}" train = normal(0,0.1)' for i in range(LAYERS)]
    ops = []
    for i in range(LAYERS):
        ops += [f"%y{i} = linear %x{i}, %w{i} : f32[{rows},{WIDTH}]", f"%x{i + 1} = relu %y{i} : f32[{rows},{WIDTH}]"]
    return (f"module phase=typed\n\ngraph @main entry ({', '.join(params)}) {{\n  " + "\n  ".join(ops) +
            f'\n  return output "y" %x{LAYERS}\n}}\n')


class Steps:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def run(self, plan, fields="", rows=4096, dtype="bf16", more=()):
        """Returns the summary, or the messages of a refusal."""
        files = {name: self.folder / name for name in ("model.nn", "cluster.lua", "out.nn", "summary.json")}
        files["model.nn"].write_text(model(rows))
        files["cluster.lua"].write_text(CLUSTER % fields)
        run = subprocess.run([NNAOT, files["model.nn"], "-g", "4", "--plan", plan, "--loss", "mse(y)", "--optimizer",
                              "adamw", "--dtype", dtype, "--target", "cuda", "--cluster", files["cluster.lua"],
                              "--micro-batches", str(SLICES), "--emit", "nn", "-o", files["out.nn"], "--summary",
                              files["summary.json"], *more], capture_output=True, text=True)
        if run.returncode:
            return run.stderr
        self.ops = [line for line in files["out.nn"].read_text().split("graph @")[1].splitlines() if " = " in line]
        return json.loads(files["summary.json"].read_text())

    def seconds(self, *args, **named):
        return self.run(*args, **named)["predicted_step_ms"] / 1e3

    def result_bytes(self, pattern):
        """The bytes of the results of the ops that match, in their order."""
        found = [re.search(r" : (f32|bf16)\[([\d,]+)\]", op) for op in self.ops if re.search(pattern, op)]
        return [(4 if m[1] == "f32" else 2) * product(map(int, m[2].split(","))) for m in found]


def product(numbers):
    n = 1
    for x in numbers:
        n *= x
    return n


def near(is_, wanted, within=1e-6):
    assert abs(is_ - wanted) <= within * abs(wanted), (is_, wanted)


def peak(summary):
    return max(r["peak_bytes"] for r in summary["per_rank"])


def neutral(s):
    for plan in "zero3=2,tp=2,offload=1", "pp=2,tp=2":
        before = s.run(plan)
        for field in NEUTRAL:
            now = s.run(plan, field)
            assert now["predicted_step_ms"] == before["predicted_step_ms"], (plan, field)
            assert now["per_rank"] == before["per_rank"], (plan, field)


def efficiency(s):
    """Half of the efficiency is half of the peak."""
    near(s.seconds("dp", "half_efficiency = 0.5"), s.seconds("dp", f"half = {FLOPS / 2}"))
    assert s.seconds("dp", "half_efficiency = 0.5") > 1.2 * s.seconds("dp")


def dispatch(s):
    """Small kernels take no less than their dispatch, so that the step is a sum of it; large ones take no more than before."""
    one, two = (s.seconds("dp", f"dispatch = {x}", rows=16) for x in (1e-2, 2e-2))
    near(two, 2 * one, 0.01)
    near(s.seconds("dp", "dispatch = 1e-9"), s.seconds("dp"), 1e-4)  # scalar kernels have no work


def prefetch(s):
    """Gathers go on beside compute; the weights that are gathered ahead are in memory besides the plan's."""
    blocked = s.run("zero3")
    gathered = s.result_bytes(r"= all_gather %w\d")
    assert len(gathered) == 2 * LAYERS - 1, gathered  # backward of the first product needs no weight
    for n in 1, 2, 4:
        now = s.run("zero3", f"prefetch = {n}")
        near(peak(now) - peak(blocked), max(sum(gathered[i:i + n]) for i in range(len(gathered))), 0)
        # Less than both one after the other, and no less than either.
        rank = now["per_rank"][0]
        assert max(rank["compute_ms"], rank["comm_ms"]) - 1e-6 <= now["predicted_step_ms"]
        assert now["predicted_step_ms"] < 0.95 * blocked["predicted_step_ms"]
    # A plan without gathers of weights has nothing to prefetch.
    assert s.run("tp", "prefetch = 4")["per_rank"] == s.run("tp")["per_rank"]
    # More of them than memory has is refused.
    assert "does not fit" in s.run("zero3", f"prefetch = 4, memory = {peak(blocked) + gathered[0]}")


def prefetch_between_nodes(s):
    """There a gather is several collectives; all of them go on beside compute."""
    nodes = "nodes = 2, per_node = 2, nics = 2, across = { alpha = 1e-6, beta = 1 / 5e9 }, "
    blocked = s.run("zero3", nodes)
    assert len(s.result_bytes("= all_gather")) > len(s.result_bytes(r"= all_gather %w\d")), s.ops
    now = s.run("zero3", nodes + "prefetch = 12")
    assert now["predicted_step_ms"] < 0.95 * blocked["predicted_step_ms"]
    assert now["predicted_step_ms"] >= max(now["per_rank"][0]["compute_ms"], now["per_rank"][0]["comm_ms"]) - 1e-6


def blocking(s):
    """No collective goes on beside compute: a step is the sum of both."""
    for plan in "tp", "dp", "zero2", "dp=2,tp=2":
        free, now = s.run(plan), s.run(plan, "blocking = true")
        rank = now["per_rank"][0]
        near(now["predicted_step_ms"], rank["compute_ms"] + rank["comm_ms"])
        near(rank["compute_ms"], free["per_rank"][0]["compute_ms"])
        near(rank["comm_ms"], free["per_rank"][0]["comm_ms"])
    assert s.seconds("tp", "blocking = true") > 1.03 * s.seconds("tp")
    assert s.seconds("pp=2,tp=2", "blocking = true") > 1.01 * s.seconds("pp=2,tp=2")


def queues(s):
    """In one stream a transfer to another stage waits for sums within a stage."""
    slow = "inside = { alpha = 1e-6, beta = 1 / 5e9 }, "
    for plan in "pp=2,tp=2", "pp=2,zero3=2":
        two, one = (s.run(plan, slow + f"queues = {n}") for n in (2, 1))
        # Transfers that ran at the same time counted once; now they run one after the other.
        assert one["predicted_step_ms"] > 1.01 * two["predicted_step_ms"]
        assert sum(r["comm_ms"] for r in one["per_rank"]) > sum(r["comm_ms"] for r in two["per_rank"])
    # Ranks with one kind of transfer have no use for a second queue.
    for plan in "tp", "pp":
        assert s.run(plan, "queues = 1")["per_rank"] == s.run(plan)["per_rank"]


def offloaded(s):
    plan = "dp,offload=1"
    before = s.seconds(plan)
    kept = sum(s.result_bytes("= swap_in "))
    near(kept, 12 * LAYERS * WIDTH ** 2, 0)  # the weight and two states, in f32, on every rank
    # Four ranks share a link that is as fast as one of theirs.
    near(s.seconds(plan, f"host_node = {HOST}"), s.seconds(plan, f"host = {HOST / 4}"))
    assert s.seconds(plan, f"host_node = {HOST}") > before
    # A slow host: its update is the step.  The node's four ranks each have all of the states.
    near(s.seconds(plan, "host_update = 1e7"), 4 * kept / 1e7, 1e-3)
    # A fast one: gradients and weights cross in 16 bits, 4 bytes and not 24 of a parameter.
    slow = s.seconds(plan, "host = 1e8, host_update = 1e15") - s.seconds(plan, "host = 1e15, host_update = 1e15")
    near(slow, kept / 12 * 4 / 1e8, 0.02)


def host_weights(s):
    """Every reader of a weight fetches it in every micro-batch, and sums of gradients come and go; without offloading none."""
    for plan in "dp,offload=1", "zero3,offload=1":
        without = s.seconds(plan, "host = 1e9")
        readers = [op for op in s.ops if re.search(r"%w\d\.bf16\b", op) and not re.search("update|%w.*copy", op)]
        shard = 2 * WIDTH ** 2 / (4 if "zero3" in plan else 1)
        assert len(readers) == 2 * LAYERS - 1, readers
        moved = SLICES * (len(readers) * shard + LAYERS * 2 * shard)
        near(s.seconds(plan, "host = 1e9, host_weights = true") - without, moved / 1e9, 0.01)
    assert s.seconds("zero3", "host_weights = true") == s.seconds("zero3")


def reserve(s):
    needs = peak(s.run("dp"))
    assert "and its device of" in s.run("dp", f"reserve = {4e9 - needs + 1}")
    assert not isinstance(s.run("dp", f"reserve = {4e9 - needs}"), str)
    # Devices that differ have their own memory, less the same reserve.
    small = "reserve = 1e6, devices = { { from = 3, to = 3, memory = %d } }"
    assert "its device of" in s.run("dp", small % (needs + 1e6 - 1)) and not isinstance(s.run("dp", small % (needs + 1e6)), str)


def half_comm(s):
    """With links that only have bandwidth, f32 values take half of the time, and others the same; memory stays."""
    links = "start = 0, inside = { alpha = 0, beta = 1 / 50e9 }, half_comm = %s"
    for plan, dtype, wide in ("dp", "bf16", 1), ("dp", "f32", 1), ("tp", "bf16", 1), ("zero3", "bf16", None), ("pp", "bf16", 0):
        full, half = (s.run(plan, links % flag, dtype=dtype)["per_rank"] for flag in ("false", "true"))
        if wide is None:  # a rank sends three quarters of a gradient in each micro-batch
            sums = s.result_bytes("= reduce_scatter ")
            assert sums == [WIDTH ** 2] * LAYERS, sums
            wide = 1e3 * SLICES * 3 * sum(sums) / 50e9 / full[0]["comm_ms"]
            assert 0.2 < wide < 0.8, wide
        for f, h in zip(full, half):
            near(h["comm_ms"], f["comm_ms"] * (1 - wide / 2), 1e-3)
            assert f["peak_bytes"] == h["peak_bytes"]


WAYS = {  # microseconds at the start and of a hop, share of bandwidth
    ("ring", "ll"): (6.6, 0.6, 1 / 2), ("ring", "ll128"): (14, 1.9, 0.92), ("ring", "simple"): (8.4, 3.4, 1),
    ("tree", "ll"): (6.8, 0.6, 0.9 / 3.8), ("tree", "ll128"): (14, 1.25, 0.7), ("tree", "simple"): (8.4, 4, 0.9),
    ("nvls", "simple"): (25, 0, 0.85)}


def nccl_seconds(kind, size, way, start, hop, byte, n):
    """By NCCL's figures, for a cluster whose rings with LL start in `start` and have hops of `hop` seconds."""
    first, each, share = WAYS[way]
    rounds = 2 if kind == "all_reduce" else 1
    sent = {"ring": rounds * (n - 1) / n, "tree": 2, "nvls": 1}[way[0]]
    return start * first / 6.6 + rounds * (n - 1) * hop * each / 0.6 + sent * size * byte / share


def nccl(s):
    """Collectives cost the least of NCCL's ways, and the tuner's file has it; without `nccl` they cost less than all of them."""
    links = "start = 6.6e-6, inside = { alpha = 0.6e-6, beta = 1e-11 }, nccl = %s, nvls = %s"
    for nvls in "false", "true":
        for plan, rows in ("zero3", 4096), ("zero2", 16), ("dp", 16):
            files = [s.folder / f"collectives.{end}" for end in ("json", "csv")]
            for f in files:
                found = s.run(plan, links % ("true", nvls), rows, more=["--comm-manifest", f])
            sends, table = json.loads(files[0].read_text()), [r.split(",") for r in files[1].read_text().splitlines()]
            chosen, seconds = {(r[0], int(r[1])): (r[3], r[4]) for r in table}, 0
            for send in sends:
                ways = [w for w in WAYS if (w[0] == "ring" or send["kind"] == "all_reduce") and (w[0] != "nvls" or nvls == "true")]
                prices = {w: nccl_seconds(send["kind"], send["bytes"], w, 6.6e-6, 0.6e-6, 1e-11, 4) for w in ways}
                own = prices[chosen[send["kind"].replace("_", ""), send["bytes"]]]
                near(own, min(prices.values()), 1e-9)
                seconds += send["count"] * own
            near(found["per_rank"][0]["comm_ms"], 1e3 * seconds, 1e-5)
            assert s.run(plan, links % ("false", nvls), rows)["per_rank"][0]["comm_ms"] < 1e3 * seconds
            algorithms = {a for a, _ in chosen.values()}
            assert ("nvls" in algorithms) == (nvls == "true" and plan == "dp"), (plan, chosen)
            if plan == "zero2":
                assert ("ring", "ll") in chosen.values(), chosen


def gather_seconds(s, rows, fields):
    """Returns the algorithms and seconds of zero3's first all_gather among four nodes, and its bytes."""
    file = s.folder / "gathers.csv"
    links = ("nodes = 4, per_node = 1, start = 6.6e-6, inside = { alpha = 0.6e-6, beta = 1e-11 }, "
             "across = { alpha = 2.7e-6, beta = 2e-11 }")
    found = s.run("zero3", f"{links}, nccl = true, {fields}", rows, more=["--comm-manifest", file])
    table = [r.split(",") for r in file.read_text().splitlines()]
    of = next(t for t in found["prices"]["terms"] if t["what"] == "all_gather")
    return {(r[3], r[4]) for r in table if r[0] == "allgather"}, of["ms"] / 1e3 / of["count"], of["bytes"] / of["count"]


def pat(s):
    """Among nodes of a rank each, PAT is among the ways of a gather if the cluster has it."""
    for fields in "pat = false", "pat = true":
        ways, seconds, size = gather_seconds(s, 16, fields)
        sent = 3 / 4 * size * 2e-11
        prices = {("ring", "ll"): 6.6e-6 + 3 * 2.7e-6 + 2 * sent, ("ring", "ll128"): 14e-6 + 3 * 4e-6 + sent / 0.92,
                  ("ring", "simple"): 8.4e-6 + 3 * 14e-6 + sent,
                  ("pat", "simple"): 8e-6 + 4 * 2.8e-6 + 2 * 4e-6 + size * 2e-11 / 0.75}
        if fields == "pat = false":
            del prices["pat", "simple"]
        near(seconds, min(prices.values()), 1e-5)
        assert min(prices, key=prices.get) in ways, (ways, prices)


def own_figures(s):
    """A cluster's own figures of an algorithm take the place of NCCL's, one by one."""
    slow = ", ".join("{ algorithm = 'ring', protocol = '%s', start = 1 }" % p for p in ("ll", "ll128"))
    for own, seconds in (("start = 1e-6, across = 2e-6, far_share = 0.5", lambda sent: 1e-6 + 3 * 2e-6 + 2 * sent),
                         ("start = 0, inside = 1", lambda sent: 3 * 14e-6 + sent)):
        simple = "{ algorithm = 'ring', protocol = 'simple', %s }" % own
        ways, found, size = gather_seconds(s, 16, f"collectives = {{ {slow}, {simple} }}")
        near(found, seconds(3 / 4 * size * 2e-11), 1e-5)
        assert ways == {("ring", "simple")}, ways


def main():
    with tempfile.TemporaryDirectory() as folder:
        for check in (neutral, efficiency, dispatch, prefetch, prefetch_between_nodes, blocking, queues, offloaded, host_weights,
                      reserve, half_comm, nccl, pat, own_figures):
            check(Steps(folder))
            print(check.__name__)


main()
