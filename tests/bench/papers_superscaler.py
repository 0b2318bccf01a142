"""SuperScaler's GPT-3, and its experiments without a speedup of one plan over another (Lin et al. 2023), for papers.py."""

import json

from papers_bench import BUILD, HERE, Plan, Row, Setting, Table, brief, parameters
from papers_nnscaler import GPT, MECHANISMS, mechanisms

GPT3 = (48, 5120, 32)  # table 2, 32 GPUs; rows of 16384 tokens (section 6.1), whose scores are in memory
SMALL_GPT3 = (24, 2048, 32)  # of figure 14
WIDTHS = {128 * k: 4 * k for k in range(1, 7)}  # of Swin with 32 layers, and its heads, as in table 2
TOKENS = range(4096, 12289, 1024)
SAVING = {"recompute": "recompute", "ZeRO3-offload": "recompute=1,offload=1"}  # on one device
MBART = {16: (48, 5120, 32), 32: (56, 6144, 32)}  # table 2
BREAKDOWN = [(16, "Megatron-LM", "60%", Plan("vp=16,recompute", 512)), (32, "Megatron-LM", "50%", Plan("vp=32,recompute", 512)),
             (16, "SuperScaler", "", Plan("pp_interlaced=2,tp=8,recompute", 512))]

# Table 3: placements of a 1-D tensor, on devices of one server and of another, and figure 18.
KINDS = [("R", "R"), ("R", "D"), ("V", "R"), ("V", "D"), ("D", "R"), ("D", "D")]
NUMBERS = [(8, 8), (8, 4), (4, 8)]
TENSOR = 16 << 20  # elements of f32: 64 MiB
FIGURE_18 = {("R", "R", 4, 8): "schunk, RD-scatter, all-gather", ("V", "D", 4, 8): "reduce-scatter, RD-scatter"}


def rows():
    """Co-shard in every layer makes 8-way tensor parallelism fit; Megatron-LM and Alpa need 16 (section 6.2) and "achieve
    similar performance", so that 3.3 over Alpa is Megatron's, too.  `whole`: without co-shard."""
    zero, tensor = Plan("zero3=4,tp=8,recompute", 128), Plan("pp=2,tp=16,recompute", 512)
    coshard, whole = Plan("pp=4,coshard:4=1,recompute_pieces=1,tp=8", 512), Plan("pp=4,tp=8,recompute", 512)
    for name, said, theirs, ours in (("deepspeed", 1.5, zero, coshard), ("deepspeed-whole", 1.5, zero, whole), (
            "megatron", 3.3, tensor, coshard), ("megatron-whole", 3.3, tensor, whole)):
        yield Row(f"gpt-32-dgx1-{name}", said, "SuperScaler fig. 12b, up to", "gpt", GPT3, 512, 32, "eager-dgx1", theirs, ours,
                  more={"tokens": 16384, "scores": True}, judged=False)


def table1(bench):
    yield from mechanisms(bench, MECHANISMS + [("sequence parallelism (ring)", "by the runtime", GPT, Plan("cp"))])


def growing(bench, settings, plans):
    """Yields peaks of growing models on one device; returns for each plan the size of the last one that fits."""
    most = {name: 0 for name in plans}
    yield f"{'':14}" + "".join(f"{name:>24}" for name in plans)
    for label, size, setting in settings:
        cells = []
        for name, plan in plans.items():
            fits, text = bench.cell(setting, plan, setting.rows)
            most[name] = size if fits else most[name]
            cells.append(text)
        yield f"{label:>14}" + "".join(f"{cell:>24}" for cell in cells)
    ours = most["co-shard"]
    yield "largest that fits, co-shard's of each: " + ", ".join(
        f"{name} {ours / size:.1f}" if size else f"{name} has none" for name, size in most.items())


def figure13(bench):
    swins = [Setting("swin", (32, width, heads), 512, 1, "eager-dgx1", more={"window": 48, "scores": True})
             for width, heads in WIDTHS.items()]
    settings = [(f"{parameters(swin) / 1e6:.0f} M", parameters(swin), swin) for swin in swins]
    yield from growing(bench, settings, {**SAVING, "co-shard": "{4}"})


def figure14(bench):
    settings = [(f"{n} tokens", n, Setting("gpt", SMALL_GPT3, 512, 1, "eager-dgx1", more={"tokens": n, "scores": True}))
                for n in TOKENS]
    yield from growing(bench, settings, {**SAVING, "co-shard": "coshard:8=1,recompute_pieces=1"})


def figure15(bench):
    """Shares of the step, averaged over ranks; transfers overlap with computation."""
    yield f"{'ranks':>6}  {'':14}{'compute':>9}{'transfer':>9}{'idle':>9}  published transfer"
    for ranks, name, said, plan in BREAKDOWN:
        _, found = bench.priced(Setting("t5", MBART[ranks], 512, ranks, "eager-dgx1"), plan)
        cells = "".join(f"{part / found['seconds']:9.0%}" for part in found["parts"]) if "seconds" in found else brief(found)
        yield f"{ranks:6}  {name:14}{cells}  {said}"


def table3(bench):
    """Each from a server of 8 V100 to another one."""
    won, best = 0, 0
    yield f"{'producers':20}{'consumers':20}{'send/recv':>12}{'paths':>12}{'ratio':>7}  steps"
    for a, b in KINDS:
        for i, j in NUMBERS:
            rvd = [f"R({n if k == 'R' else 1})V({n if k == 'V' else 1})D({n if k == 'D' else 1})" for k, n in ((a, i), (b, j))]
            found = bench.output(f"rvd {TENSOR} {' '.join(rvd)}", [
                BUILD / "bin" / "nnaot-plan", "rvd", "--shape", TENSOR, "--from", f"{rvd[0]}@0-{i - 1}", "--to",
                f"{rvd[1]}@8-{7 + j}", "--cluster", HERE / "clusters" / "eager-dgx1.lua", "--json"])
            answer = json.loads("".join(found["lines"]))
            ratio = answer["p2p"] / answer["total"]
            won, best = won + (ratio > 1.01), max(best, ratio)
            steps, said = ", ".join(step["prim"] for step in answer["steps"]), FIGURE_18.get((a, b, i, j))
            yield f"{rvd[0]:20}{rvd[1]:20}{1e3 * answer['p2p']:9.3f} ms{1e3 * answer['total']:9.3f} ms{ratio:7.1f}  {steps}" + (
                f" (fig. 18: {said})" if said else "")
    yield f"{won} of {len(KINDS) * len(NUMBERS)} are faster than send/recv, by up to {best:.1f}"


def tables():
    return [
        Table("superscaler-mechanisms", "table 1", "15 of 18 mechanisms", table1),
        Table("superscaler-swin-memory", "fig. 13", "co-shard trains 3.7 times the parameters of recompute and of ZeRO3-offload, "
              "up to 1.3 G, on one V100", figure13),
        Table("superscaler-gpt-memory", "fig. 14", "co-shard trains 1.2 times the tokens of ZeRO3-offload, and 1.7 times those of "
              "recompute, up to 10240", figure14),
        Table("superscaler-mbart-parts", "fig. 15", "Megatron-LM spends 60 and 50 % on transfers between servers; 1.9 times 1.5 "
              "over it by two steps (recompute by blocks, which has no plan here, and by ops): mbart-16-dgx1-megatron", figure15),
        Table("superscaler-reshard", "fig. 16", "up to 32 over send/recv by collectives, 1.6 more by paths between servers",
              lambda bench: bench.script("reshards.py")),
        Table("superscaler-rvd", "table 3, figs. 17 and 18", "12 of 18 faster than send/recv, by up to 57", table3),
    ]
