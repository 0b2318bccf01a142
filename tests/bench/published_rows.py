"""Published steps in 16 bits with their plans, for published.py.  Each has the model, the plan and the seconds of its source.

The seconds of sources that state FLOP/s follow from their own formula of a step's operations, without which FLOP/s say nothing:
`sc21` counts the recomputation of all layers, `model` does not. Words per second and device are batches of words.

Not stated in the sources, and taken from their scripts: rows of a micro-batch and chunks of table 1 (Megatron-LM,
examples/sc21/run_table_1.sh). MegaScale: a row in a micro-batch, and six chunks (its section 6). torchtitan recomputes by op; here
every second layer is recomputed, its other option, which its A100 table has within 3 % of it.
"""

from dataclasses import dataclass, field

SC21 = "Narayanan et al., SC 2021, table 1"
MLSYS = "Korthikanti et al., MLSys 2023, table 5"
MTNLG = "Smith et al. 2022 (MT-NLG), section 2.4"
MEGASCALE = "Jiang et al., NSDI 2024, table 2: Megatron-LM"
LLAMA3 = "Grattafiori et al. 2024, table 4"
TITAN_A100 = "torchtitan 0413364, docs/performance.md"
TITAN_H100 = "torchtitan 31a17bf, benchmarks/llama3_h100_202412_torchtitan.md"
MIST = "Zhu et al., EuroSys 2025: Mist's artifact, README.md, steps 2.4 and 2.5"


@dataclass
class Row:
    name: str
    source: str
    model: str  # of paper_models.py
    size: tuple
    rows: int  # of a step
    ranks: int
    cluster: str
    plan: str
    micro_batches: int
    seconds: float
    more: dict = field(default_factory=dict)  # of the model


def operations(layers, width, rows, tokens, words, times):
    """Of a step: `times` is 72 without recomputation of layers, and 96 with it (Narayanan et al., equation 3)."""
    head = 12 if times == 72 else 16
    return times * rows * tokens * layers * width**2 * (1 + tokens / (6 * width) + words / (head * layers * width))


def sc21():
    """Scores in memory, and dropout; all layers recomputed; parts of a layer added up, not scattered."""
    for name, layers, width, heads, tp, pp, chunks, ranks, rows, of_one, tflops in (
            ("1.7b", 24, 2304, 24, 1, 1, 1, 32, 512, 16, 137), ("3.6b", 30, 3072, 32, 2, 1, 1, 64, 512, 16, 138),
            ("7.5b", 36, 4096, 32, 4, 1, 1, 128, 512, 16, 142), ("18b", 40, 6144, 48, 8, 1, 1, 256, 1024, 8, 135),
            ("39b", 48, 8192, 64, 8, 2, 1, 512, 1536, 4, 138), ("76b", 60, 10240, 80, 8, 4, 3, 1024, 1792, 2, 140),
            ("145b", 80, 12288, 96, 8, 8, 2, 1536, 2304, 2, 148), ("310b", 96, 16384, 128, 8, 16, 2, 1920, 2160, 1, 155),
            ("530b", 105, 20480, 128, 8, 35, 3, 2520, 2520, 1, 163), ("1t", 128, 25600, 160, 8, 64, 1, 3072, 3072, 1, 163)):
        replicas = ranks // tp // pp
        seconds = operations(layers, width, rows, 2048, 51200, 96) / (ranks * tflops * 1e12)
        plan = ",".join([*stages(pp, chunks), *[f"dp={replicas}"], *([f"vp={tp}"] if tp > 1 else []), "recompute=1"])
        yield Row(f"sc21-{name}", SC21, "gpt", (layers, width, heads), rows, ranks, "published-selene", plan,
                  rows // replicas // of_one, seconds, {"scores": True, "dropout": True})


def stages(pp, chunks):
    return [] if pp == 1 else [f"pp={pp}" if chunks == 1 else f"pp_interleaved:{chunks}={pp}"]


def mlsys():
    for name, layers, width, heads, pp, rows, of_one, chunks, full, selective in (
            ("22b", 48, 6144, 64, 1, 4, 4, 1, 1.42, 1.10), ("175b", 96, 12288, 96, 8, 64, 1, 3, 18.13, 13.75),
            ("530b", 105, 20480, 128, 35, 280, 1, 3, 49.05, 37.83), ("1t", 128, 25600, 160, 64, 512, 1, 1, 94.42, 71.49)):
        for kind, plan, seconds in (("full", "vp=8,recompute=1", full),
                                    ("selective", "megatron.lua=8,recompute_attention=1", selective)):
            yield Row(f"mlsys-{name}-{kind}", MLSYS, "gpt", (layers, width, heads), rows, 8 * pp, "published-selene",
                      ",".join([*stages(pp, chunks), plan]), rows // of_one, seconds, {"scores": True, "dropout": True})


def mtnlg():
    for servers, seconds in (280, 60.1), (350, 50.2), (420, 44.4):
        replicas = servers // 35
        yield Row(f"mtnlg-{servers}", MTNLG, "gpt", (105, 20480, 128), 1920, 8 * servers, "published-mtnlg",
                  f"pp=35,dp={replicas},vp=8,recompute=1", 1920 // replicas, seconds, {"scores": True, "dropout": True})


def megascale():
    for ranks, rows, seconds in ((256, 768, 40.0), (512, 768, 21.2), (768, 768, 15.2), (1024, 768, 11.9), (3072, 6144, 29.02),
                                 (6144, 6144, 14.78), (8192, 6144, 12.24), (12288, 6144, 8.57)):
        replicas = ranks // 64
        yield Row(f"megascale-{ranks}", MEGASCALE, "gpt", (96, 12288, 128), rows, ranks, "published-ampere",
                  f"pp_interleaved:6=8,zero1={replicas},megatron.lua=8,recompute_attention=1", rows // replicas, seconds,
                  {"scores": True, "dropout": True})


def llama3():
    """Rows of 8,192 words, 16 M a step; operations are those of the model, attention's whole square. The first and the last stage
    have a layer less (section 3.3.2): 126 layers and the ends are eight chunks on each of 16 stages."""
    for ranks, tflops in (8192, 430), (16384, 400):
        replicas, rows = ranks // 128, 2048
        seconds = (6 * 405.9e9 + 12 * 126 * 16384 * 8192) * rows * 8192 / (ranks * tflops * 1e12)
        yield Row(f"llama3-405b-{ranks}", LLAMA3, "llama", (126, 16384, 128), rows, ranks, "published-h100",
                  f"llama3.lua=16,zero1={replicas},megatron.lua=8", rows // replicas, seconds,
                  {"inner": 53248, "tokens": 8192, "dropout": True})


def torchtitan():
    two = {"words": 32000, "tokens": 4096, "dropout": True}
    models = {"llama2-13b": ((40, 5120, 40), {"groups": 40, "inner": 13824, **two}),
              "llama2-70b": ((80, 8192, 64), {"inner": 28672, **two}),
              "llama3-8b": ((32, 4096, 32), {"tokens": 8192, "dropout": True}),
              "llama3-70b": ((80, 8192, 64), {"inner": 28672, "tokens": 8192})}
    for name, kind, rows, recompute, words in (
            ("llama3-8b", "layer", 1, "second_layers.lua=1", 2904), ("llama3-70b", "full", 1, "recompute=1", 331),
            ("llama2-13b", "no", 2, "", 2162), ("llama2-13b", "layer", 2, "second_layers.lua=1", 1914),
            ("llama2-70b", "full", 2, "recompute=1", 353)):
        size, more = models[name]
        yield Row(f"titan-a100-{name}-{kind}", TITAN_A100, "llama", size, 64 * rows, 64, "published-a100",
                  ",".join(["zero3=64", *filter(None, [recompute])]), 1, rows * more["tokens"] / words, more)
    for ranks, words in (8, 6667), (128, 6514):
        yield Row(f"titan-h100-{ranks}", TITAN_H100, "llama", *models["llama3-8b"][:1], 2 * ranks, ranks, "published-grand-teton",
                  f"zero3={ranks},second_layers.lua=1", 1, 2 * 8192 / words, models["llama3-8b"][1])


def mist():
    """GPT-3 1.3B on two L4: the best configuration of Megatron-LM, with two steps of accumulation, and Mist's own."""
    gpt = ("gpt", (24, 2048, 16), 32, 2, "published-l4")
    yield Row("mist-1.3b-megatron", MIST, *gpt, "dp=2,recompute=1", 2, 11.329, {"scores": True, "dropout": True})
    yield Row("mist-1.3b-tuned", MIST, *gpt, "mist.lua=2", 16, 9.9345, {"scores": True, "dropout": True})


ROWS = [*sc21(), *mlsys(), *mtnlg(), *megascale(), *llama3(), *torchtitan(), *mist()]
# Half of the rows fix the parameters of the clusters: every second of each source, from the first.
FITTED = {row.name for source in dict.fromkeys(r.source for r in ROWS) for row in [r for r in ROWS if r.source == source][::2]}
NEMO = "NeMo 24.07, docs/source/performance/performance_summary.md"
FP8 = [("Llama 3.1 8B, 8 H100, FSDP", TITAN_H100, 8532), ("Llama 3.1 8B, 128 H100, FSDP", TITAN_H100, 8380),
       ("Llama 3.1 70B, 256 H100, FSDP 32, TP 8", TITAN_H100, 829),
       ("Llama 3.1 405B, 512 H100, FSDP 8, TP 8, PP 8", TITAN_H100, 100),
       ("Llama 3.1 405B, 512 H100, FSDP 8, TP 8, PP 8 interleaved", TITAN_H100, 128),
       ("GPT-3 175B, 512 H100, TP 4, PP 8 in 6 chunks, batch 2,048", NEMO, 782),
       ("Llama 2 70B, 64 H100, TP 4, PP 4 in 20 chunks", NEMO, 1707),
       ("Llama 3 70B, 64 H100, TP 4, PP 4 in 5 chunks, CP 2", NEMO, 1533)]
# Of rows whose names begin so, and whose errors are above 6 %.
CAUSES = {
    "sc21-1.7b": "one share of the peak is for products of all widths, and measured FLOP/s rise with the width: 137 TFLOP/s with "
                 "2,304 columns, 163 with 25,600. sc21-3.6b is the next in width.",
    "sc21-76b": "both this row and sc21-310b have chunks; Megatron-LM of 2021 waits for transfers between stages, which run beside "
                "computation here (`blocking` is of collectives). How much of the error that is, is not known.",
    "mlsys-530b": "by the count of operations of `sc21`, Megatron-LM has 163 TFLOP/s with this model in 2021 and 180 in 2022 "
                  "(49.05 s), and one share of the peak is for both.",
    "megascale-256": "from 256 to 1,024 devices the seconds of a device for a row grow by 19 % as measured, and by 8 % as "
                     "predicted. Computational stragglers, which the paper finds, are not in the model.",
    "mist-1.3b-tuned": "the executor of the artifact is not nnaot's, and the share of the peak is that of Megatron-LM's row. "
                       "What of it is Mist's own cost is not known."}
