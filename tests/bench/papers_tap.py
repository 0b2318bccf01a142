"""TAP's experiments (Shi et al. 2023), for papers.py.

The text states orders and bounds, no seconds of steps: tables have what is published in words.  Left out is figure 8, which
compares XLA's fusion with none (-9 to +1 %), and no plans.

M6's shapes are not in the text, only their parameters, 100 G and 1 T; those of paper_models.py are from M6-T (Yang et al. 2021),
and have as many.
"""

from papers_bench import Setting, Table, brief, parameters

T5_LARGE = dict(model="t5", rows=16, cluster="eager-tap", dtype="f32", more={"words": 32128, "source": 512, "target": 512})
WIDTH, HEADS, LAYERS = 1024, 16, 48  # of T5-large, 770 M: 24 layers in the encoder, 24 in the decoder; rows: figure 11
SHARDED = {"DP": "dp", "MHA": "shard_parts.lua:1", "FFN": "shard_parts.lua:2", "Megatron": "tp", "search": "search"}
GROWING = [24, 48, 96]  # layers of T5
CLASSES = [1024, 100_000, 1_000_000]
RESNET_152 = (3, 8, 36, 3)
M6 = [("M6-MoE-100B", 128, 1024, 512, 4096), ("M6-MoE-1T", 480, 3840, 960, 21248)]  # ranks, rows, experts, their width


def t5(ranks, layers=LAYERS):
    return Setting(size=(layers, WIDTH, HEADS), ranks=ranks, **T5_LARGE)


def resnet(classes, ranks, **more):
    return Setting("resnet", (classes,), 1024, ranks, "eager-tap", "f32", more)


def figure6(bench):
    yield f"{'ranks':>6}  {'plan':10}{'step and memory':22}{'compute':>9}{'transfer':>9}"
    for ranks in 8, 16:
        for name, plan in SHARDED.items():
            found = bench.price(t5(ranks), plan)
            parts = "".join(f"{part:7.2f} s" for part in found.get("parts", [])[:2])
            yield f"{ranks:6}  {name:10}{brief(found):22}{parts}"


def figure7(bench):
    yield f"{'model':24}{'unique blocks':>14}{'ops':>8}{'seconds':>9}"
    for name, setting in ("T5-large", t5(16)), ("ResNet-152, 100K classes", resnet(100_000, 16, blocks=RESNET_152)):
        found = bench.price(setting, "search")
        yield f"{name:24}{found['blocks']:14}{found['ops']:8}{found['took']:9.2f}"


def searched(bench, cases):
    yield f"{'model':24}{'parameters':>12}{'search':>10}{'auto':>10}"
    for name, setting in cases:
        search, auto = (bench.price(setting, plan)["took"] for plan in ("search", "auto"))
        yield f"{name:24}{parameters(setting) / 1e6:10.0f} M{search:8.2f} s{auto:8.2f} s"


def figure9(bench):
    yield from searched(bench, [(f"T5, {n // 2} + {n // 2} layers", t5(16, n)) for n in GROWING])


def figure10(bench):
    yield from searched(bench, [(f"ResNet-50, {n} classes", resnet(n, 16)) for n in CLASSES])


def figure12(bench):
    yield f"{'model':28}{'ranks':>6}  {'dp':22}{'search':22}"
    for classes in CLASSES:
        for ranks in 8, 16:
            cells = "".join(f"{bench.cell(resnet(classes, ranks), plan)[1]:22}" for plan in ("dp", "search"))
            yield f"{f'ResNet-50, {classes} classes':28}{ranks:6}  {cells}"


def experts(bench):
    """Under expert parallelism; what does not fit is in brackets."""
    yield f"{'model':14}{'parameters':>12}{'ranks':>7}  {'sgd':22}{'adamw':22}"
    for name, ranks, rows, many, inner in M6:
        cells = ""
        for optimizer in "sgd", "adamw":
            setting = Setting("m6", (24, 1024, 16), rows, ranks, "tap", more={"experts": many, "inner": inner}, optimizer=optimizer)
            cells += f"{bench.cell(setting, 'ep')[1]:22}"
        yield f"{name:14}{parameters(setting) / 1e9:10.1f} G{ranks:7}  {cells}"


def tables():
    return [
        Table("tap-plans", "fig. 6", "T5-large on V100: on 16 over 32 Gb/s, FFN only is the best of the tensor parallel plans",
              figure6),
        Table("tap-blocks", "fig. 7", "5 unique blocks of T5-large, pruned in 12 s; of ResNet-152 in 1 s", figure7),
        Table("tap-t5-search", "fig. 9", "less than 15 min, 21 to 67 times faster than Alpa; T5-large 6 min, and Alpa 197",
              figure9),
        Table("tap-resnet-search", "fig. 10", "103 to 162 times faster than Alpa", figure10),
        Table("tap-resnet", "fig. 12", "the best plan is consistently faster than Alpa's; no figures in the text", figure12),
        Table("tap-experts", "section 6.5", "M6-MoE-100B trains on 128 V100 of 32 GB, M6-MoE-1T on 480", experts),
    ]
