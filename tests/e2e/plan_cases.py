"""The cases for plans: small models, their data, and the plans.

All dimensions that a plan may split are divisible by 8: batch, heads, width, vocabulary, experts, positions.
models/modules.py defines the models; models/make.py made models/*.onnx and models/expected.json.
"""

import json
import pathlib
import random
import struct

HERE = pathlib.Path(__file__).resolve().parent / "models"
BATCH = 8
BATCHES = 5  # of different data, repeated

# inputs: name -> (kind, shape of a row, the parameter of `kind`); dropout: losses depend on nnaot's random numbers;
# flags: further flags for nnaot
MODELS = {
    "wide": dict(loss="cross_entropy(logits)", inputs={"x": ("float", [32]), "labels": ("int", [], 16)}),
    "gpt": dict(loss="next_token(logits,input_ids)", inputs={"input_ids": ("chain", [16], 64)}, dropout=True),
    "gpt_tied": dict(loss="next_token(logits,input_ids)", inputs={"input_ids": ("chain", [16], 64)}, dropout=True),
    "bert": dict(loss="cross_entropy(logits,ignore_index=-100)",
                 inputs={"input_ids": ("chain", [16], 64), "labels": ("masked", [16], 64)}),
    "vit": dict(loss="cross_entropy(logits)", inputs={"x": ("float", [1, 8, 8]), "labels": ("int", [], 16)}),
    "axial": dict(loss="cross_entropy(logits)", inputs={"x": ("float", [8, 8, 8]), "labels": ("int", [8, 8], 8)}),
    "recycle": dict(loss="cross_entropy(logits)",
                    inputs={"x": ("float", [16, 8]), "labels": ("int", [16], 8)},
                    flags=["--detach", "/h.2/Add_1,/h.2_1/Add_1"]),
    "moe": dict(loss="next_token(logits,input_ids)", inputs={"input_ids": ("chain", [16], 64)}),
    "unet": dict(loss="cross_entropy(logits)", inputs={"x": ("float", [1, 8, 8]), "labels": ("int", [8, 8], 8)}),
    "warp": dict(loss="cross_entropy(logits)", inputs={"x": ("float", [1, 8, 8]), "labels": ("int", [8, 8], 8)}),
    "tagger": dict(loss="cross_entropy(logits)", inputs={"input_ids": ("chain", [16], 64), "labels": ("int", [16], 16)}),
    "mixtral": dict(loss="next_token(logits,input_ids)", inputs={"input_ids": ("chain", [16], 64)}),
    "routed": dict(loss="next_token(logits,input_ids)", inputs={"input_ids": ("chain", [16], 64)}),
    "llama": dict(loss="next_token(logits,input_ids)", inputs={"input_ids": ("chain", [16], 64)}),
    "swin": dict(loss="cross_entropy(logits)", inputs={"x": ("float", [1, 16, 16]), "labels": ("int", [], 16)}),
    "gnn": dict(loss="cross_entropy(logits)",
                inputs={"x": ("float", [16, 8]), "source": ("int", [32], 16), "target": ("int", [32], 16),
                        "labels": ("int", [], 16)}),
    "evoformer": dict(loss="cross_entropy(logits)",
                      inputs={"msa": ("float", [4, 8, 8]), "labels": ("int", [4, 8], 8)},
                      flags=["--detach", "/h.1/Add_2,/h.1/Add_8,/h.1_1/Add_2,/h.1_1/Add_8"]),
    "t5": dict(loss="cross_entropy(logits)",
               inputs={"input_ids": ("chain", [16], 64), "decoder_input_ids": ("chain", [16], 64), "labels": ("int", [16], 64)}),
    "packed": dict(loss="next_token(logits,input_ids)", inputs={"input_ids": ("chain", [16], 64)}),
    "unet_resize": dict(loss="cross_entropy(logits)", inputs={"x": ("float", [1, 8, 8]), "labels": ("int", [8, 8], 8)}),
}

WITHOUT_DROPOUT = {}  # model with dropout -> the same model without
LANGUAGE = ["gpt", "gpt_tied", "bert", "moe"]
ALL = [*LANGUAGE, "wide", "vit", "axial"]
SUM, GATHER, SCATTER, EXCHANGE, MOVE = "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "move"
SLOW = ["--cluster", str(pathlib.Path(__file__).resolve().parent / "plans" / "slow.lua")]
FAST = ["--cluster", str(pathlib.Path(__file__).resolve().parent / "plans" / "fast.lua")]
ORDERED = str(pathlib.Path(__file__).resolve().parent / "plans" / "ordered.lua")
INTERLACED, SIDE_BRANCH, SPREAD, UNEQUAL, CHEAPEST, CARVED, CARVED_STAGES, OWN = (
    str(pathlib.Path(__file__).resolve().parent / "plans" / f"{name}.lua")
    for name in ["interlaced", "side_branch", "spread", "unequal", "cheapest", "carved", "carved_stages", "own"])
THREE_CHUNKS = str(HERE.parents[1] / "bench" / "interleaved.lua")
# Plan, models, the most typical first, numbers of ranks, more flags, and the kinds of collectives that such a step must
# send, or it would be another plan.
PLANS = [
    ("dp", ALL, [4, 2, 8], [], [SUM]),
    ("dp", ["bert", "gpt", "moe"], [2, 4], ["--micro-batches", 2], [SUM]),
    ("dp", ["unet", "unet_resize", "warp", "evoformer"], [2, 4], [], [SUM]),
    ("dp", ["axial", "gpt", "bert"], [2, 4], ["--batch", BATCH // 2, "--accumulate", 2], [SUM]),
    ("tp", ALL, [8, 2, 4], [], [SUM]),
    ("tp", ["gpt", "moe"], [2, 4], ["--micro-batches", 2], [SUM]),
    ("tp", ["unet_resize", "unet"], [2, 4], [], [SUM]),
    ("dp=2,tp=2", ["warp"], [4], [], [SUM]),
    ("tp", ["gpt", "moe"], [4], ["--cluster", "cpu:4x2"], [SUM]),  # in each node, then between them
    ("sp", LANGUAGE, [4, 2, 8], [], [SCATTER, GATHER]),
    ("sp", ["llama"], [4, 2], [], [SCATTER, GATHER]),
    ("sp", ["packed"], [2], ["--micro-batches", 2], [SCATTER, GATHER, EXCHANGE]),
    ("sp", ["packed"], [4, 8], [], [SCATTER, GATHER]),
    ("tp2d", ["packed"], [4], [], [SCATTER, GATHER]),
    ("pp_zb_h1=2,tp=2", ["packed"], [4], ["--micro-batches", 4], [MOVE, SUM, EXCHANGE]),
    ("search_qkv", ["packed"], [2, 4], FAST, []),
    ("vp", LANGUAGE, [2, 8, 4], [], [SUM]),
    ("vp", ["gpt_tied", "bert"], [4, 2], ["--micro-batches", 2], [SUM]),
    ("tp2d", ["gpt", *ALL], [4, 8, 2], [], [SCATTER, GATHER]),
    ("tp3d", ["wide", *ALL], [4, 8], [], [SUM, SCATTER, GATHER]),
    ("dap", ["axial"], [8, 2, 4], [], [SUM, EXCHANGE]),
    ("dap", ["axial"], [2, 4], ["--micro-batches", 2], [SUM, EXCHANGE]),
    ("cp", LANGUAGE, [4, 2, 8], [], [MOVE, SUM]),
    ("cp", ["gpt", "bert"], [2, 4], ["--micro-batches", 2], [MOVE, SUM]),
    ("cp", ["bert", "gpt"], [4, 2], ["--batch", BATCH // 2, "--accumulate", 2], [MOVE, SUM]),
    ("cp", ["mixtral"], [2, 4], [], [MOVE, SUM]),
    ("dp=2,cp=2", ["gpt", "bert"], [4], [], [MOVE, SUM]),
    ("cp=2,dp=2", ["gpt", "bert"], [4], [], [MOVE, SUM]),
    ("cp=2,tp=2", ["gpt", "bert"], [4], [], [MOVE, SUM]),
    ("tp=2,cp=2", ["gpt", "bert"], [4], [], [MOVE, SUM]),
    ("pp=2,cp=2", ["gpt", "bert"], [4], ["--micro-batches", 2], [MOVE, SUM]),
    ("cp=2,pp=2", ["gpt", "bert"], [4], ["--micro-batches", 2], [MOVE, SUM]),
    ("zero3=2,cp=2", ["gpt"], [4], [], [MOVE, SUM, SCATTER, GATHER]),
    ("cp=2,recompute=1", ["gpt", "bert"], [2], [], [MOVE, SUM]),
    ("cp_zero1", ["gpt", "bert"], [4, 2], [], [MOVE, SCATTER, GATHER]),
    ("cp_zero3", ["bert", "gpt"], [4, 2], ["--micro-batches", 2], [MOVE, SCATTER, GATHER]),
    ("cp_a2a", LANGUAGE, [4, 2, 8], [], [EXCHANGE, SUM]),
    ("dp=2,cp_a2a=2", ["gpt", "bert"], [4], [], [EXCHANGE, SUM]),
    ("cp=2,cp_a2a=2", ["gpt", "bert"], [4], [], [MOVE, EXCHANGE, SUM]),
    ("cp_a2a=2,cp=2", ["bert", "gpt"], [4], [], [MOVE, EXCHANGE, SUM]),
    ("cp_a2a=2,tp=2", ["bert", "gpt"], [4], ["--micro-batches", 2], [EXCHANGE, SUM]),
    ("coshard", ["vit", *ALL], [4, 2, 8], [], [SUM]),
    ("recompute", ["gpt", *ALL], [4, 2, 8], [], [SUM]),
    ("recompute", ["moe", "vit"], [2, 4], ["--micro-batches", 2], [SUM]),
    ("recompute_attention", ["bert", *ALL], [2, 4, 8], [], [SUM]),
    ("recompute_lookups", ["gpt", *ALL], [2, 4], [], [SUM]),
    ("coshard=2,recompute=2", ["gpt", "vit"], [4], [], [SUM]),
    ("coshard=2,recompute_pieces=2", ["vit", "gpt"], [4], [], [SUM]),
    ("coshard:4@1:2@2", ["gpt", "vit"], [2, 4], [], [SUM]),
    ("dp=2,recompute_pieces:4@1:2@2=1", ["vit", "gpt"], [2], [], [SUM]),
    ("tp=2,coshard:2@2=2,recompute_pieces=1", ["gpt"], [4], [], [SUM]),
    ("pp=2,coshard=2,recompute_pieces=1", ["gpt"], [4], ["--micro-batches", 2], [MOVE, SUM]),
    ("tp=4,recompute=1", ["gpt_tied", "moe"], [4], [], [SUM]),
    ("zero3=2,recompute=2", ["vit", "gpt"], [4], [], [SUM, SCATTER, GATHER]),
    ("offload", ["vit", "gpt"], [2, 4], [], [SUM]),
    ("zero2=2,offload_gradients=2", ["gpt"], [4], ["--micro-batches", 2], [SUM, SCATTER, GATHER]),
    ("pp:1:1=2,offload_gradients:1@2=1", ["vit"], [2], ["--micro-batches", 4], [MOVE]),
    ("zero3=2,offload=2", ["vit", "moe"], [4], [], [SUM, SCATTER, GATHER]),
    ("zero1=2,offload:1@1:1@3-4=1", ["gpt"], [2], [], [SUM, SCATTER, GATHER]),
    ("pp:1:3=2,recompute:2@2-4=1,offload:1@1:2@2-4=1", ["gpt"], [2], ["--micro-batches", 4], [MOVE]),
    ("zero1=2,swap:1@1-2:1@3-4=1", ["gpt"], [2], ["--micro-batches", 2], [SUM, SCATTER, GATHER]),
    ("pp:1:3=2,recompute:1@3=1,swap:1@1-2:1@4=1", ["gpt"], [2], ["--micro-batches", 4], [MOVE]),
    ("pp:1:1=2,offload:1@2=1", ["vit"], [2], ["--micro-batches", 4], [MOVE]),  # its evaluation has 4
    ("pp=2,recompute=2", ["bert", "gpt"], [4], ["--micro-batches", 2], [MOVE, SUM]),
    ("pp:2:2=2,recompute:1@1-2:2@3-4=1", ["gpt"], [2], ["--micro-batches", 4], [MOVE]),
    ("pp:1:1=2,recompute:1@2=1", ["vit"], [2], ["--micro-batches", 4], [MOVE]),  # its evaluation has 4
    ("pp_zb_h1:2:2=2,recompute:2@1-2=1", ["gpt"], [2], ["--micro-batches", 4], [MOVE]),
    ("pp:1:3=2", ["bert"], [2], ["--micro-batches", 4], [MOVE]),  # parts of its two layers
    ("pp_interleaved:1:1:3:1=2", ["gpt"], [2], ["--micro-batches", 4], [MOVE]),
    ("pp:1:3=2,recompute=1", ["bert"], [2], ["--micro-batches", 4], [MOVE]),  # a layer is recomputed on two stages
    ("pp_zb_h1:3:1=2,dp=2", ["bert"], [4], ["--micro-batches", 4], [MOVE, SUM]),
    ("search=4,recompute=1", ["gpt", "axial"], [4], FAST, []),
    (CHEAPEST, ["gpt", "wide"], [4, 2], FAST, []),
    (CARVED, ["gpt", "vit"], [4, 2], FAST, []),
    (OWN, ["vit", "gpt", "bert"], [2, 4], [], [SUM]),
    (CARVED_STAGES, ["gpt"], [4, 2], ["--micro-batches", 2], [MOVE]),
    ("ep", ["moe"], [4, 2, 8], [], [SUM]),
    ("zero1", ALL, [2, 4, 8], [], [SCATTER, GATHER]),
    ("zero2", ALL, [4, 2, 8], [], [SCATTER, GATHER]),
    ("zero2", ["gpt", "vit"], [2, 4], ["--batch", BATCH // 2, "--accumulate", 2], [SCATTER, GATHER]),
    ("zero3", ["moe", *ALL], [8, 2, 4], [], [SCATTER, GATHER]),
    ("zero3", ["gpt", "axial"], [2, 4], ["--micro-batches", 2], [SCATTER, GATHER]),
    ("zero3", ["gpt"], [4], ["--micro-batches", 2, "--cluster", "cpu:4x2"], [SCATTER, GATHER]),
    ("dp=2,tp=2", ["bert", *ALL], [4], [], [SUM]),
    ("dp=2,sp=4", ["gpt_tied", "gpt"], [8], [], [SUM, SCATTER, GATHER]),
    ("dp=2,zero3=2", ["wide", "gpt"], [4], [], [SUM, SCATTER, GATHER]),
    ("dp=2,vp=2", ["bert", "gpt_tied"], [4], [], [SUM]),
    ("dp=2,dap=4", ["axial"], [8], [], [SUM, EXCHANGE]),
    ("dp=2,ep=2", ["moe"], [4], [], [SUM]),
    ("dp=2,tp2d=4", ["gpt", "wide"], [8], [], [SUM, SCATTER, GATHER]),
    ("tp=2,zero1=2", ["vit", "gpt"], [4], [], [SUM, SCATTER, GATHER]),
    ("tp=2,zero3=2", ["gpt", "moe"], [4], ["--micro-batches", 2], [SUM, SCATTER, GATHER]),
    ("zero3=2,tp=2", ["wide", "gpt_tied"], [4], [], [SUM, SCATTER, GATHER]),
    ("pp", ["bert", *(m for m in ALL if m != "wide")], [4, 2, 8], [], [MOVE]),  # wide has four units
    ("pp", ["wide"], [4, 2], [], [MOVE]),
    ("pp", ["gpt_tied", "axial"], [2, 4], ["--micro-batches", 2], [MOVE]),
    ("pp", ["gpt", "axial"], [4, 2], ["--micro-batches", 8], [MOVE]),
    ("pp_zb_h1=2,dp=2", ["moe", "gpt"], [4], ["--micro-batches", 4], [MOVE, SUM]),
    # Tables of rotary embeddings are common to all stages, which cut them by themselves.
    ("pp_zb_h2=2,sp=2", ["llama"], [4], ["--micro-batches", 4], [MOVE, SCATTER, GATHER]),
    ("pp", ["llama"], [2], ["--micro-batches", 4], [MOVE]),
    ("pp_interleaved=2,tp=2", ["gpt", "bert"], [4], ["--micro-batches", 4], [MOVE, SUM]),
    ("dp=2,pp_zb_v=2", ["vit", "gpt"], [4], ["--micro-batches", 4], [MOVE, SUM]),
    ("pp_interlaced", ["gpt_tied", "vit", "bert"], [4, 2], ["--micro-batches", 4], [MOVE, SUM]),
    ("pp_interlaced=2,tp=2", ["gpt", "moe"], [4], ["--micro-batches", 4], [MOVE, SUM]),
    ("pp_interlaced=2,tp=2", ["t5", "gpt_tied"], [4], ["--micro-batches", 4, *SLOW], [MOVE, SUM]),  # routes over a cluster
    ("pp_interlaced=2,zero1=2", ["gpt_tied"], [4], ["--micro-batches", 4], [MOVE, SUM, SCATTER, GATHER]),
    ("pp_interlaced=4,tp=2", ["t5"], [8], ["--micro-batches", 8], [MOVE, SUM]),
    # Each rank has the gradients of its tokens, and the gradient of its part of the table.
    ("pp_interlaced=2,sp=2", ["t5"], [4], ["--micro-batches", 4], [MOVE, SUM, SCATTER, GATHER]),
    (SIDE_BRANCH, ["t5"], [2], ["--micro-batches", 4], [MOVE, SUM]),
    ("pp_zb_h1=2,tp=2", ["t5"], [4], ["--micro-batches", 4], [MOVE, SUM]),
    ("pp=2,sp=2", ["t5"], [4], ["--micro-batches", 4], [MOVE, SCATTER, GATHER]),
    ("pp=4,tp=2", ["t5"], [8], ["--micro-batches", 4], [MOVE, SUM]),
    ("pp_zb_h1=2,dp=2", ["t5"], [4], ["--micro-batches", 4], [MOVE, SUM]),
    ("pp_interleaved=2,zero1=2", ["t5"], [4], ["--micro-batches", 4], [MOVE]),
    ("pp_interleaved", ["t5"], [4, 2], ["--micro-batches", 8], [MOVE]),
    (THREE_CHUNKS, ["gpt", "moe", "t5"], [2, 4], ["--micro-batches", 8], [MOVE]),
    ("pp_3f1b", ["recycle"], [4, 2], ["--micro-batches", 8], [MOVE]),
    ("pp_3f1b", ["evoformer"], [2, 4], ["--micro-batches", 4], [MOVE]),
    ("pp_3f1b=2,recompute=1", ["evoformer"], [2], ["--micro-batches", 4], [MOVE]),
    ("pp_3f1b=2,dp=2", ["recycle", "evoformer"], [4], ["--micro-batches", 4], [MOVE, SUM]),
    ("tp=2,pp_3f1b=2", ["recycle", "evoformer"], [4], ["--micro-batches", 4], [MOVE, SUM]),
    ("pp_3f1b=4,dp=2,recompute=1", ["evoformer"], [8], ["--micro-batches", 4], [MOVE, SUM]),
    ("pp_chimera", ["bert", "axial", "wide"], [4, 2], ["--micro-batches", 4], [MOVE]),
    ("pp_chimera", ["wide", "bert", "axial", "vit"], [2, 4], [], [MOVE]),
    ("pp_chimera=2,dp=2", ["vit", "moe"], [4], ["--micro-batches", 2], [MOVE, SUM]),
    ("pp_chimera=2,search=2", ["moe"], [4], ["--micro-batches", 2], [MOVE, SUM]),
    ("tp=2,pp_dualpipe=2", ["bert", "wide"], [4], ["--micro-batches", 2], [MOVE, SUM]),
    ("tp=2,pp_dualpipe=2", ["bert", "wide"], [4], [], [MOVE, SUM]),
    ("pp_dualpipe", ["moe", "vit"], [4, 2], ["--micro-batches", 4], [MOVE]),
    ("pp_terapipe", ["gpt", "gpt_tied", "moe"], [4, 2], ["--micro-batches", 2], [MOVE]),
    ("dp=2,pp_terapipe=2", ["moe", "gpt_tied"], [4], ["--micro-batches", 2], [MOVE, SUM]),
    ("pp_terapipe=2,tp=2", ["gpt", "moe"], [4], ["--micro-batches", 2], [MOVE, SUM]),
    ("pp_terapipe=2,recompute=2", ["gpt"], [4], ["--micro-batches", 2], [MOVE, SUM]),
    ("pp=2,dp=2", ["gpt", "vit"], [4], ["--micro-batches", 2], [MOVE, SUM]),
    ("pp=2,vp=2", ["gpt_tied", "moe"], [4], [], [MOVE, SUM]),
    ("pp=2,zero3=2", ["axial", "gpt"], [4], ["--micro-batches", 2], [MOVE, SCATTER, GATHER]),
    ("dp=2,pp=2,tp=2", ["gpt", "bert"], [8], ["--micro-batches", 2], [MOVE, SUM]),
    (INTERLACED, ["gpt_tied", "gpt"], [4, 2], [], [MOVE, GATHER]),
    (ORDERED, ["gpt", "vit", "gpt_tied"], [2, 4], [], [SUM]),
    (ORDERED, ["gpt", "wide"], [4], ["--micro-batches", 2], [SUM]),
    (UNEQUAL, ["gpt_tied", *ALL], [8, 4, 2], [], [MOVE]),
    (UNEQUAL, ["gpt", "axial"], [4, 8], ["--micro-batches", 2], [MOVE, SUM]),
    (SPREAD, ["gpt_tied", "gpt"], [4, 2], [], [MOVE, SUM]),
    ("search", ALL, [4, 2, 8], FAST, []),
    ("search", ["moe", "gpt"], [4], ["--micro-batches", 2, *FAST], []),
    ("search_qkv", ["bert", "gpt_tied"], [4, 8], FAST, []),
    ("search3", ["gpt", "wide", "moe"], [8], FAST, []),
    ("dp=2,search=2", ["vit", "gpt"], [4], FAST, []),
    ("pp=2,search=2", ["gpt", "bert"], [4], FAST, [MOVE]),
    ("auto", ["axial", *ALL], [4], FAST, []),
    ("auto", ["gpt"], [4], [], []),
    ("auto", ["unet", "unet_resize"], [2], FAST, []),
    ("dp", ["tagger", "gnn", "swin", "mixtral"], [2, 4, 8], [], [SUM]),
    ("dp", ["gnn", "swin", "tagger", "mixtral", "unet"], [4, 2], ["--micro-batches", 2], [SUM]),
    ("dp", ["mixtral", "tagger", "gnn", "swin", "unet_resize"], [2, 4], ["--batch", BATCH // 2, "--accumulate", 2], [SUM]),
    ("tp", ["swin", "gnn", "mixtral"], [4, 2, 8], [], [SUM]),
    ("tp", ["tagger"], [4, 2, 8], [], None),  # of a recurrent layer tp splits nothing
    ("tp", ["mixtral", "swin", "gnn"], [2, 4], ["--micro-batches", 2], [SUM]),
    ("ep", ["mixtral"], [4, 2, 8], [], [SUM]),
    ("ep", ["routed"], [4, 2, 8], [], [SUM, EXCHANGE]),
    ("ep", ["routed"], [4, 2], ["--micro-batches", 2], [SUM, EXCHANGE]),
    ("ep", ["routed"], [2, 4], ["--batch", BATCH // 2, "--accumulate", 2], [SUM, EXCHANGE]),
    ("dp=2,ep=2", ["routed"], [4], [], [SUM, EXCHANGE]),
    ("pp=2,ep=2", ["routed"], [4], ["--micro-batches", 2], [MOVE, SUM, EXCHANGE]),
    ("recompute=1,ep=4", ["routed"], [4], [], [SUM, EXCHANGE]),
    ("zero1=2,ep=2", ["routed"], [4], [], [SCATTER, GATHER, EXCHANGE]),
    ("zero3=2,ep=2", ["routed"], [4], ["--micro-batches", 2], [SCATTER, GATHER, EXCHANGE]),
    ("tp=2,ep=2", ["routed"], [4], [], [SUM, EXCHANGE]),
    ("dp", ["routed"], [4, 2], [], [SUM]),
    ("zero3", ["routed"], [4], [], [SCATTER, GATHER]),
    ("zero1", ["gnn", "tagger", "mixtral", "swin", "unet"], [4, 2, 8], [], [SCATTER, GATHER]),
    ("zero3", ["tagger", "mixtral", "swin", "gnn", "unet_resize"], [8, 2, 4], [], [SCATTER, GATHER]),
    ("zero3", ["swin", "gnn", "mixtral", "tagger"], [2, 4], ["--micro-batches", 2], [SCATTER, GATHER]),
    ("pp", ["swin", "mixtral", "gnn", "unet"], [4, 2, 8], ["--micro-batches", 4], [MOVE]),
    ("pp", ["tagger"], [2, 4], ["--micro-batches", 4], [MOVE]),
    ("dp=2,tp=2", ["gnn", "mixtral", "swin", "tagger"], [4], [], [SUM]),
    ("pp=2,dp=2", ["tagger", "mixtral", "swin", "gnn"], [4], ["--micro-batches", 2], [MOVE, SUM]),
    ("auto", ["routed", "mixtral", "tagger", "swin", "gnn", "unet"], [4, 2, 8], FAST, []),
    ("dp=2,tp=2", ["gpt", "mlp"], [4], ["--reshard", "p2p"], [MOVE]),
    ("pp=2,tp=2", ["gpt", "mlp"], [4], ["--micro-batches", 2, "--reshard", "intra"], [MOVE, SUM]),
]
# Model, plan and ranks of the checkpoint, and of the run that resumes from it.
RESUMES = [
    ("gpt", ("tp", 4), ("dp", 2)),
    ("gpt", ("zero3", 4), ("dp=2,tp=2", 4)),
    ("gpt_tied", ("vp", 4), ("zero1", 2)),
    ("wide", ("tp2d", 4), ("tp3d", 8)),
    ("moe", ("dp", 2), ("zero1", 8)),
    ("bert", ("pp", 4), ("dp=2,tp=2", 4)),
    ("routed", ("ep", 4), ("dp", 2)),
    ("routed", ("zero1=2,ep=2", 4), ("ep", 2)),
]


def count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def values(kind, shape, n=None):
    """Returns BATCHES * BATCH rows: uniform floats from -1 to 1, integers below n, a chain in which the next integer
    mostly follows from the last, or integers of which most are replaced by -100."""
    rng = random.Random(kind)
    out = []
    for _ in range(BATCHES * BATCH):
        last = int(rng.random() * (n or 1))
        for _ in range(count(shape)):
            x = rng.random()
            if kind == "float":
                out.append(2 * x - 1)
            elif kind == "chain":
                last = (5 * last + 1 if x < 0.8 else int(x * 1e6)) % n
                out.append(last)
            else:
                out.append(int(rng.random() * n) if kind == "int" or x < 0.25 else -100)
    return out


def rows(model, name):
    """Returns the data of one input as (values, shape, whether they are integers)."""
    kind, shape, *n = MODELS[model]["inputs"][name]
    return values(kind, shape, *n), [BATCHES * BATCH, *shape], kind != "float"


def data_flags(model, folder):
    """Writes the data of a model into a folder, and returns the flags that name it."""
    flags = []
    for name in MODELS[model]["inputs"]:
        data, shape, whole = rows(model, name)
        path = pathlib.Path(folder, f"{model}.{name}.npy")
        head = f"{{'descr': '{'<i8' if whole else '<f4'}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
        head += " " * (-(10 + len(head) + 1) % 64) + "\n"
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                         struct.pack(f"<{len(data)}{'q' if whole else 'f'}", *data))
        flags += ["--input", f"{name}={path}"]
    return flags


def compile_flags(model, folder):
    """Returns nnaot's flags for a model, for any number of ranks.

    The gradient of a key's bias is 0 up to rounding.  With the usual epsilon of 1e-8 AdamW would turn rounding errors
    into updates, and these weights, on which no loss depends, would differ between two plans.
    """
    return [HERE / f"{model}.onnx", "--batch", BATCH, "--loss", MODELS[model]["loss"], "--lr", "0.003",
            "--optimizer", "adamw:weight_decay=0.1,betas=0.9/0.95,eps=1e-5", "--clip-norm", "0.5",
            *MODELS[model].get("flags", [])]


def pytorch(model):
    """Returns PyTorch's losses and gradient norms, for models without random numbers."""
    return None if MODELS[model].get("dropout") else json.loads((HERE / "expected.json").read_text())[model]
