"""The samples under plans: their data, and every program of passes/planner/plans.

gpt2_drop is gpt2 with other Dropouts: their exported ratio is 0, and 0.1 here.
"""

import json
import pathlib
import re
import struct

import common
import plan_cases
from common import OPTIMIZER, ROOT, SAMPLE, SAMPLES

RATIO = 0.1
DROPOUTS = 5
# The gradient of a key's bias is 0 up to rounding, so gpt2's epsilon is large: see plan_cases.compile_flags.
GPT2 = ["--batch", 8, "--lr", "0.003", "--clip-norm", 1, "--optimizer", "adamw:weight_decay=0.1,eps=1e-5"]
# The samples for which PyTorch's losses are known.
AS_PYTORCH = ["mlp", "resnet"]

WITHOUT_DROPOUT = {"gpt2_drop": "gpt2"}
BOTH = ["gpt2_drop", "gpt2"]
DENSE = ["mlp", *BOTH]
ALL = ["resnet", *DENSE]
EACH = [2, 4, 8]
SUM, GATHER, SCATTER, MOVE = "all_reduce", "all_gather", "reduce_scatter", "move"
NOTHING = None
FAST, SLOW = plan_cases.FAST, plan_cases.SLOW


def own(name):
    """Returns a program of tests/e2e/plans."""
    return str(pathlib.Path(__file__).resolve().parent / "plans" / f"{name}.lua")


# Like plan_cases.PLANS; NOTHING: all ranks do the same, which nnaot must report, and no step sends anything.
PLANS = [
    ("dp", ALL, EACH, [], [SUM]),
    ("dp", DENSE, [4, 2], ["--micro-batches", 2], [SUM]),
    ("dp", BOTH, [2, 4], ["--batch", 4, "--accumulate", 2], [SUM]),
    ("tp", DENSE, [4, 2, 8], [], [SUM]),
    ("tp", ["resnet"], EACH, [], NOTHING),
    ("sp", BOTH, [2, 4, 8], [], [SCATTER, GATHER]),
    ("sp", ["mlp"], EACH, [], [SUM]),
    ("sp", ["resnet"], EACH, [], NOTHING),
    ("vp", DENSE, [2, 4, 8], [], [SUM]),
    ("vp", ["resnet"], [2], [], [SUM, GATHER]),
    ("vp", ["resnet"], [4, 8], [], NOTHING),
    ("words", BOTH, [2, 4, 8], [], [SUM]),
    ("tp2d", DENSE, [8, 2, 4], [], [SUM, SCATTER, GATHER]),
    ("tp2d", ["resnet"], EACH, [], NOTHING),
    ("tp3d", DENSE, [8, 2, 4], [], [SUM, SCATTER, GATHER]),
    ("tp3d", ["resnet"], [4, 8], [], [SUM]),
    ("tp3d", ["resnet"], [2], [], NOTHING),
    ("cp", BOTH, [4, 2, 8], [], [MOVE, SUM]),
    ("cp_a2a", BOTH, [2, 4], [], ["all_to_all", SUM]),
    ("cp_zero1", BOTH, [4, 2], [], [MOVE, SCATTER, GATHER]),
    ("cp_zero3", BOTH, [2, 4], [], [MOVE, SCATTER, GATHER]),
    # The parts of other programs.
    ("tokens", BOTH, [2, 4], [], [SUM, GATHER]),
    ("shard_states", ["mlp", *BOTH], [2, 4], [], [GATHER]),
    ("shard_gradients", ["mlp"], [2], [], NOTHING),
    ("shard_weights", ["mlp"], [2], [], NOTHING),
    ("shard_masters", ["mlp"], [2], [], NOTHING),
    ("dap", ALL, EACH, [], NOTHING),
    ("ep", ALL, EACH, [], NOTHING),
    ("coshard", ALL, [4, 2, 8], [], [SUM]),
    ("recompute", ALL, [4, 2, 8], [], [SUM]),
    ("swap", ALL, [4, 2, 8], [], [SUM]),
    ("offload", ALL, [4, 2, 8], [], [SUM]),
    ("offload_gradients", DENSE, [2, 4], ["--micro-batches", 2], [SUM]),
    ("optimizer_in_backward", ["mlp", "resnet"], [2, 4, 8], [], [SUM]),
    ("cross_barrier", ["mlp", "resnet"], EACH, [], [SUM]),  # gpt2's gradients are clipped
    ("recompute_pieces", ALL, [4], [], [SUM]),
    ("recompute_attention", BOTH, [2, 4, 8], [], [SUM]),
    ("recompute_attention", ["mlp", "resnet"], EACH, [], [SUM]),
    ("recompute_lookups", ALL, [4], [], [SUM]),
    ("pp", ["resnet", *BOTH], [4, 2], [], [MOVE]),
    ("pp", ["mlp"], [2], [], [MOVE]),
    ("pp", BOTH, [8], ["--micro-batches", 2], [MOVE]),
    ("pp_gpipe", BOTH, [2, 4], ["--micro-batches", 4], [MOVE]),
    ("pp_zb_h1", BOTH, [4, 2], ["--micro-batches", 8], [MOVE]),
    ("pp_zb_h2", BOTH, [4, 2], ["--micro-batches", 8], [MOVE]),
    ("pp_search", BOTH, [4, 2], ["--micro-batches", 4], [MOVE]),
    ("pp_uneven", BOTH, [3, 4], ["--micro-batches", 4], [MOVE]),
    ("pp_interleaved", BOTH, [2, 4], ["--micro-batches", 4], [MOVE]),
    ("pp_zb_v", BOTH, [4, 2], ["--micro-batches", 8], [MOVE]),
    ("pp_interlaced", BOTH, [4, 2], ["--micro-batches", 8], [MOVE, SUM]),
    ("pp_chimera", ["gpt2"], [4, 2], ["--micro-batches", 4], [MOVE]),
    ("pp_dualpipe", ["gpt2"], [4, 2], ["--micro-batches", 4], [MOVE]),
    ("pp_terapipe", BOTH, [4, 2, 8], ["--micro-batches", 2], [MOVE]),
    ("pp_terapipe", BOTH, [4, 2, 8], [], [MOVE]),
    ("zero1", ALL, [4, 2, 8], [], [SCATTER, GATHER]),
    ("zero2", ALL, [2, 4, 8], [], [SCATTER, GATHER]),
    ("zero2", BOTH, [2, 4], ["--batch", 4, "--accumulate", 2], [SCATTER, GATHER]),
    ("zero3", ALL, [4, 2, 8], [], [SCATTER, GATHER]),
    ("search", ALL, [4, 2, 8], FAST, []),
    ("search_qkv", BOTH, [4, 8], FAST, []),
    ("search_added", ALL, [4, 8], FAST, []),
    ("search3", DENSE, [8], FAST, []),
    ("auto", ALL, [4, 8], FAST, []),
    (own("classifier"), ALL, [4, 8], FAST, [SUM]),
    (own("sums"), ALL, [8, 4], FAST, [SUM]),
    (own("halves"), ALL, [4, 8], FAST, [MOVE]),
    (own("stored"), ALL, [8, 4], FAST, [GATHER]),
    (own("turns"), ALL, [4, 8], [], [SUM]),
    ("pp=4,recompute=1", BOTH, [4], ["--micro-batches", 4], [MOVE]),
    ("pp_interleaved=2,recompute=1", BOTH, [2], ["--micro-batches", 4], [MOVE]),
    ("pp_zb_h1=4,recompute=1", ["gpt2_drop"], [4], ["--micro-batches", 8], [MOVE]),
    # A tied embedding sharded over all ranks; one stage holds it whole.
    ("pp_zb_h1=2,search=2", ["gpt2"], [4], ["--micro-batches", 2, *SLOW], [MOVE]),
    ("dp=2,tp=2", DENSE, [4], [], [SUM]),
    ("dp=2,tp=4", BOTH, [8], ["--micro-batches", 2], [SUM]),
    ("dp=2,sp=2", BOTH, [4], [], [SUM, SCATTER, GATHER]),
    ("dp=2,vp=4", BOTH, [8], [], [SUM]),
    ("dp=2,tp2d=4", DENSE, [8], [], [SUM, SCATTER, GATHER]),
    ("dp=2,zero3=2", ALL, [4], [], [SUM, SCATTER, GATHER]),
    ("zero1=2,tp=2", DENSE, [4], [], [SUM, SCATTER, GATHER]),
    ("dp=2,zero2=2,tp=2", DENSE, [8], [], [SUM, SCATTER, GATHER]),
]
RESUMES = [
    ("resnet", ("dp", 4), ("zero3", 2)),
    ("gpt2_drop", ("dp=2,tp=2", 4), ("zero1", 8)),
]


def without_row():
    """Returns the programs of passes/planner/plans without a row.  Tested elsewhere are those for annotated models
    (annotated.py), for recycled models (such a model), and the one that trains differently from one rank (pipedream.py)."""
    programs = {p.stem for p in (ROOT / "passes/planner/plans").glob("*.lua")}
    return programs - {p for p, *_ in PLANS} - {"onnx", "onnx_search", "pp_3f1b", "pp_pipedream"}


def sample_of(model):
    return model.removesuffix("_drop")


def with_dropout(source, to):
    """Writes a model with other Dropout ratios, constants of 4 bytes, than 0."""
    ratio = rb'(drop/Constant_output_0\x1a[^"]*"\x08Constant\*\x14\n\x05value\*\x08\x10\x01J\x04)\0{4}'
    text, n = re.subn(ratio, lambda m: m[1] + struct.pack("<f", RATIO), source.read_bytes())
    assert n == DROPOUTS, f"{n} Dropouts"
    to.write_bytes(text)
    return to


def data_flags(model, folder):
    return common.data_flags(sample_of(model))


def compile_flags(model, folder):
    name = sample_of(model)
    file = SAMPLES / name / f"{name}.onnx"
    if name != model:
        file = with_dropout(file, pathlib.Path(folder, f"{model}.onnx"))
    flags = ["--batch", SAMPLE[name]["batch"], *OPTIMIZER["adamw"]] if model in AS_PYTORCH else GPT2
    return [file, "--loss", SAMPLE[name]["loss"], *flags]


def pytorch(model):
    """Returns PyTorch's losses and gradient norms, if they are known."""
    return json.loads((SAMPLES / model / "expected.json").read_text())["adamw"] if model in AS_PYTORCH else None
