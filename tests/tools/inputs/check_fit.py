"""check_fit.py NNAOT NNAOT_PLAN SAMPLES FOLDER: nnaot-plan fit beside nnaot's own plans for each cluster, in three types, and
its sums."""

import json
import pathlib
import subprocess
import sys

nnaot, plan, samples, folder = sys.argv[1:3] + [pathlib.Path(p) for p in sys.argv[3:]]
folder.mkdir(exist_ok=True)
priced = folder / "priced.lua"
priced.write_text('return {like = "h200:1x2", dollars_per_hour = 3.5}')
memory_unknown = folder / "unknown.lua"
memory_unknown.write_text('return {like = "h100:1x2", memory = 0, reserve = 0}')
CLUSTERS = {"h100:1x4": 4, "cpu:1x2": 2, "h100:1x1": 1, str(priced): 2, str(memory_unknown): 2}
GPT = [samples / "gpt2/gpt2.onnx", "--loss", "next_token(logits,input_ids)", "--batch", "16"]
MLP = [samples / "mlp/mlp.onnx", "--loss", "cross_entropy(logits)", "--batch", "64"]


def near(x, y):
    return abs(x - y) <= 1e-6 * abs(y)


def fit(model, *options, clusters=CLUSTERS):
    command = [plan, "fit", *model, *options, "--cluster", ",".join(clusters), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 1) and not done.stderr, done
    answer = json.loads(done.stdout)
    assert (done.returncode == 0) == any(row["fits"] for row in answer["clusters"])
    assert [row["cluster"] for row in answer["clusters"]] == list(clusters)
    return answer


def compare(model, rows, tokens, *options):
    """The step, its plan and its peak are those of nnaot --emit plan."""
    answer = fit(model, *options)
    for row in answer["clusters"]:
        name, ranks = row["cluster"], CLUSTERS[row["cluster"]]
        summary = folder / "s.json"
        subprocess.run([nnaot, *model, *options, "-g", str(ranks), "--cluster", name, "--emit", "plan", "-o", "/dev/null",
                        "--summary", summary], check=True, stderr=subprocess.DEVNULL)
        s = json.loads(summary.read_text())
        assert row["fits"] and row["devices"] == ranks, row
        assert row["plan"] == s["plan"] and row["micro_batches"] == s["micro_batches"], (row, s["plan"], s["micro_batches"])
        assert near(row["step_ms"], s["predicted_step_ms"]) or abs(row["step_ms"] - s["predicted_step_ms"]) < 1e-6, (row, s)
        assert row["peak_bytes"] == max(rank["peak_bytes"] for rank in s["per_rank"]), row
        assert row["lacks_bytes"] == 0 and (row["memory_bytes"] is None) == (name == str(memory_unknown)), row
        # Rates and prices of a step.
        assert near(row["samples_per_s"], rows / row["step_ms"] * 1e3), row
        assert row["tokens_per_s"] is None if not tokens else near(row["tokens_per_s"], tokens / row["step_ms"] * 1e3), row
        assert row["dollars_per_hour"] == (7 if name == str(priced) else None), row
        if name == str(priced):
            assert near(row["dollars_per_million_samples"], 7 / 3600 / row["samples_per_s"] * 1e6), row
            if tokens: assert near(row["dollars_per_million_tokens"], 7 / 3600 / row["tokens_per_s"] * 1e6), row
    assert answer["smallest"] == "h100:1x1"


for dtype in "f32", "bf16", "f16":
    compare(MLP, 64, None, "--dtype", dtype, "--optimizer", "adamw")
length = 64
compare(GPT, 16, 16 * length)
compare(GPT, 32, 32 * length, "--accumulate", "2", "--plan", "dp", "--dtype", "bf16")

# Too little memory: the bytes that lack are those of nnaot's error, for the same plan.
small = folder / "small.lua"
small.write_text('return {like = "cpu:1x2", memory = 20000}')
answer = fit(MLP, "--plan", "zero3", "--micro-batches", "1", clusters=[str(small)])
row = answer["clusters"][0]
command = [nnaot, *MLP, "-g", "2", "--cluster", small, "--plan", "zero3", "--micro-batches", "1", "--emit", "plan"]
done = subprocess.run([*command, "-o", "/dev/null"], capture_output=True, text=True)
assert done.returncode == 1 and f"needs {row['peak_bytes']} bytes" in done.stderr, done.stderr
assert not row["fits"] and answer["smallest"] is None and row["plan"] == "zero3"
assert row["memory_bytes"] == 20000 and row["lacks_bytes"] == row["peak_bytes"] - 20000, row
assert row["step_ms"] is None and row["samples_per_s"] is None, row
print("equal")
