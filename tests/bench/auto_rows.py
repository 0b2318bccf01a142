"""The rows of auto.py: models, clusters, and the plans of experts with their sources.

An expert's plan is the configuration of its source in nnaot's words, from outside to inside: stages, replicas with ZeRO, ranks
that share a layer. Interleaving has the number of chunks of the source.  Micro-batches are those of the source where the batch is,
else those that have its rows in a micro-batch. Plans `by hand` follow rules: tensor parallelism within a node, stages between.
"""

import importlib
import math
import pathlib
from dataclasses import dataclass, field
from typing import Callable

import paper_models

HERE = pathlib.Path(__file__).resolve().parent
NEXT = "next_token(logits,input_ids)"
SC21 = "Narayanan et al. 2021, table 1"
MLSYS = "Korthikanti et al. 2022, table 3"
MLPERF = "MLPerf training 3.1, NVIDIA, 1,344 DGX H100"
BRIDGE = "Megatron-Bridge, recipes of H100"
TITAN = "torchtitan, benchmarks/llama3_h100_202412"
LLAMA3 = "Llama 3 (2024), table 4"
MCORE = "Megatron-Core, moe/README.md"
DEEPSEEK = "DeepSeek-V3 (2024), section 3.2"
NNSCALER = "nnScaler (2024), section 8.3"
HAND = "by hand"


@dataclass
class Expert:
    plan: str
    micro_batches: int
    source: str = HAND


@dataclass
class Row:
    name: str
    model: tuple  # the maker's name and arguments
    make: Callable  # of a folder: writes the model, returns its path, its loss, and whether the batch is open
    batch: int
    ranks: int
    cluster: str  # a name, or a file of clusters/
    experts: list = field(default_factory=list)
    dtype: str = "bf16"
    target: str = "cuda"
    auto_flags: tuple = ()  # of auto: the plans of experts have their own slots

    def write(self, folder):
        return self.make(folder)

    def cluster_text(self):
        """Named clusters have as many nodes of eight as the ranks need."""
        file = HERE / "clusters" / f"{self.cluster}.lua"
        return str(file) if file.exists() else f"{self.cluster}:{math.ceil(self.ranks / 8)}x{min(8, self.ranks)}"

    def key(self):
        return " ".join(map(str, (self.model, self.batch, self.dtype, "-g", self.ranks, self.cluster, *self.auto_flags)))


def onnx(kind, loss=NEXT, module="large_models", **sizes):
    """A maker of large_models.py or auto_models.py, imported when it is needed: it needs the package onnx."""
    def make(folder):
        of = importlib.import_module(module)
        name = f"{kind}-" + "-".join(map(str, sizes.values())) if sizes else kind
        return getattr(of, kind)(name, folder, **sizes), loss, True

    return (kind, *sizes.items()), make


def text(kind, size, rows, **more):
    """A model of paper_models.py; its batch is fixed."""
    def make(folder):
        module, loss = paper_models.MODELS[kind](*size, rows, **more)
        path = pathlib.Path(folder, f"{kind}-{'-'.join(map(str, size))}-{rows}-{len(more)}.nn")
        path.write_text(module)
        return path, loss, False

    return (kind, size, rows, *more.items()), make


def experts(source, *plans):
    """Pairs of a plan and its micro-batches."""
    return [Expert(plan, micro_batches, source) for plan, micro_batches in plans]


def interleaved(chunks, stages, rest):
    return f"pp_interleaved:{chunks}={stages},{rest}"


GPT3 = onnx("gpt", layers=96, width=12288, heads=96)
T5 = onnx("t5", "next_token(logits,decoder_input_ids)")
LLAMA = {n: onnx("llama", layers=layers, width=width, heads=heads, inner=inner, tokens=8192)
         for n, layers, width, heads, inner in (("8b", 32, 4096, 32, 14336), ("70b", 80, 8192, 64, 28672),
                                                ("405b", 126, 16384, 128, 53248))}


def gpt3():
    yield Row("gpt3-32", *GPT3, 512, 32, "h200", experts(
        HAND, ("pp=4,sp=8,recompute=1", 512), ("zero3=4,sp=8,recompute=1", 16), ("pp=8,sp=4,recompute=1", 128),
        ("pp_zb_h1=8,sp=4", 256), ("pp=8,sp=4,recompute_attention=1", 512), ("zero3=32,swap=1", 16)))
    yield Row("gpt3-1024", *GPT3, 1024, 1024, "h200", [
        *experts(HAND, ("pp_zb_h1=16,dp=8,sp=8", 128), ("pp=16,dp=8,sp=8", 128), ("pp=8,dp=16,sp=8", 64),
                 ("pp_zb_h1=16,zero1=16,sp=4", 64)),
        *experts(SC21, ("pp=16,dp=8,tp=8,recompute=1", 128)),
        *experts(MLSYS, (interleaved(3, 8, "dp=16,sp=8,recompute_attention=1"), 64)),
        *experts(MLPERF, (interleaved(6, 8, "zero1=32,sp=4"), 32))])
    yield Row("gpt3-16384", *GPT3, 4096, 16384, "h200", [
        *experts(HAND, ("pp_zb_h2=32,dp=64,sp=8", 64), ("pp_zb_h1=16,dp=128,sp=8", 32), ("pp=8,dp=256,sp=8", 16)),
        *experts(MLPERF, (interleaved(6, 8, "zero1=512,sp=4"), 8))])


def t5():
    for ranks in 16, 32, 1024:
        yield Row(f"t5-large-{ranks}", *T5, 512, ranks, "h200", [
            *experts(HAND, *([(f"dp={ranks}", 1), (f"zero1={ranks}", 1), (f"dp={ranks // 2},sp=2", 1)] if ranks <= 512 else
                             [("dp=512,sp=2", 1), ("dp=256,sp=4", 1), ("dp=128,sp=8", 1), ("zero1=512,sp=2", 1)]),
                     (f"zero1={ranks // 8},sp=8", 1))])


def llama3():
    yield Row("llama3-8b-64", *LLAMA["8b"], 512, 64, "h100", [
        *experts(TITAN, ("zero3=64,recompute=1", 4), ("zero3=64,recompute_attention=1", 8)),
        *experts(HAND, ("zero1=64,recompute=1", 8), ("zero1=32,sp=2", 16), ("pp=2,zero1=32,recompute=1", 16)),
        *experts(BRIDGE, ("zero1=32,cp=2", 16))])
    yield Row("llama3-70b-256", *LLAMA["70b"], 512, 256, "h100", [
        *experts(TITAN, ("zero3=32,sp=8,recompute=1", 1), ("zero3=32,sp=8,recompute=1", 4)),
        *experts(BRIDGE, (interleaved(5, 4, "zero1=8,cp=2,sp=4"), 64), (interleaved(5, 8, "zero1=8,sp=4"), 64)),
        *experts(HAND, ("pp=4,zero1=16,sp=4,recompute=1", 32), ("pp=4,zero1=8,sp=8", 64), ("pp=8,zero1=8,sp=4", 64))])
    yield Row("llama3-405b-16384", *LLAMA["405b"], 2048, 16384, "h100", [
        *experts(LLAMA3, ("pp=16,zero1=128,sp=8", 16), (interleaved(4, 16, "zero1=128,sp=8"), 16)),
        *experts(BRIDGE, (interleaved(8, 8, "zero1=128,cp=2,sp=8"), 16)),
        *experts(HAND, ("pp_zb_h1=16,zero1=128,sp=8", 16), ("pp=16,zero1=128,sp=8,recompute=1", 16))])


def moe():
    """Experts have slots for 1.5 times the mean; auto may take as many."""
    slots = ("--expert-capacity", 150)
    yield Row("mixtral-64", *onnx("mixtral", module="auto_models"), 256, 64, "h100", [
        *experts(MCORE, (interleaved(8, 4, "zero1=2,ep:150=8"), 16), ("pp=4,zero1=2,ep:150=8", 16)),
        *experts(HAND, ("pp=4,zero1=2,ep:150=8,recompute=1", 16), ("zero3=8,ep:150=8,recompute=1", 4),
                 ("pp=4,zero1=2,sp=8", 128))], auto_flags=slots)
    yield Row("deepseek-v3-2048", *onnx("deepseek", module="auto_models"), 15360, 2048, "h100", [
        *experts(DEEPSEEK, ("pp_dualpipe=16,zero1=2,ep:150=64", 120)),
        *experts(BRIDGE, (interleaved(4, 8, "zero1=2,ep:150=64,sp=2"), 120)),
        *experts(HAND, ("pp=16,zero1=2,ep:150=64,recompute=1", 120),
                 ("pp_zb_h1=16,zero1=2,ep:150=64,recompute=1", 120))], auto_flags=slots)


def vit():
    yield Row("vit-22b-512", *onnx("vit", "cross_entropy(logits)", "auto_models"), 4096, 512, "h100", [
        *experts(HAND, ("zero3=512", 1), ("zero1=64,sp=8", 1), ("zero3=64,sp=8", 1), ("pp=4,zero1=32,sp=4", 16),
                 ("pp=8,zero1=64", 16), ("zero1=128,tp=4,recompute=1", 2))])


def nnscaler():
    """Models of table 9 on its clusters, with PyTorch's figures as in papers.py; both systems as there."""
    swin = {4: (32, 512, 16), 8: (40, 768, 24), 16: (48, 1024, 32), 32: (56, 1536, 32)}
    ours = {4: "pp=2,{4},tp=2", 8: "pp=4,{6},tp=2", 16: "pp=4,{4},tp=4", 32: "pp=4,{4},tp=8"}
    table = {4: (48, 2048, 32), 8: (64, 3072, 48), 16: (64, 4096, 64), 32: (64, 6144, 96)}
    words = {4: 530_000, 8: 830_000, 16: 1_460_000, 32: 2_100_000}
    folds = {4: (48, 256, 8), 8: (64, 512, 16), 16: (96, 1024, 32), 32: (128, 1024, 32)}
    common = {"dtype": "f16", "target": "cuda:sm_80"}
    for dgx in "dgx2", "dgx1":
        for n in 4, 8, 16, 32:
            tp = 2 if n == 4 else 4
            yield Row(f"swin-{n}-{dgx}", *text("swin", swin[n], 512, window=48, bias=True), 512, n, f"eager-{dgx}", experts(
                NNSCALER, (ours[n], 512), (f"zero3={n // tp},tp={tp},recompute,offload=1", 512 * tp // n),
                (f"tp={n},recompute", 512)), **common)
            many, zero3 = (f",tp={n // 4}", f"zero3={n // 4},") if n > 4 else ("", "")
            yield Row(f"t5-{n}-{dgx}", *text("t5", table[n], 512, words=words[n]), 512, n, f"eager-{dgx}", experts(
                NNSCALER, (f"pp_interlaced=4{many},recompute", 128), (f"{zero3}vp=4,recompute,offload=1", 512 * 4 // n)), **common)
            forwards = {16: [("dp=4,pp_3f1b=4,recompute", 32)], 32: [("zero1=8,pp_3f1b=2,tp=2,recompute", 16)]}
            yield Row(f"alphafold-{n}-{dgx}", *text("evoformer", folds[n], 128), 128, n, f"eager-{dgx}", experts(
                NNSCALER, (f"zero3={n},recompute" if n < 32 else "zero3=16,tp=2,recompute", 128 // min(n, 16)),
                *forwards.get(n, [(f"dp={n},recompute", 128 // n)])), **common)


# A small row for tests: a GPT of two layers on a node.
SMALL = Row("small-8", *text("gpt", (2, 256, 4), 32, tokens=128), 32, 8, "h100", experts(
    HAND, ("dp=8", 1), ("zero1=8", 1), ("dp=4,tp=2", 1), ("pp=2,dp=4", 4)))
ROWS = [*gpt3(), *t5(), *llama3(), *moe(), *vit(), *nnscaler(), SMALL]
