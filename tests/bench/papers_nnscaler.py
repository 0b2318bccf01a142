"""nnScaler's experiments without a speedup of one plan over another (Lin et al., OSDI 2024), for papers.py.

Table 8 lists the mechanisms that the system expresses: here each is a named plan of a small GPT on 8 ranks, or of AlphaFold2,
planned and priced. SuperScaler's table 1 is the same list and ring attention.
"""

from dataclasses import replace

from papers_bench import BUILD, Plan, Setting, Table, brief

SMALL = dict(model="gpt", size=(16, 1024, 16), rows=32, ranks=8, cluster="eager-dgx1", more={"tokens": 1024})
GPT = Setting(**SMALL)
EVOFORMER = Setting("evoformer", (8, 256, 8), 32, 8, "eager-dgx1")
ON_CPU = Setting(**SMALL, dtype="f32", target="cpu")  # a step on GPUs is one CUDA graph

# Mechanism, whether the papers express it, setting, plan.
MECHANISMS = [
    ("data parallelism", "yes", GPT, Plan("dp")),
    ("flexible tensor parallelism", "yes", GPT, Plan("search")),
    ("transformer parallelism", "yes", GPT, Plan("tp")),
    ("DAP", "yes", EVOFORMER, Plan("dap=4,dp=2", 16)),
    ("sequence parallelism", "yes", GPT, Plan("sp")),
    ("ZeRO", "yes", GPT, Plan("zero3")),
    ("1F1B", "yes", GPT, Plan("pp", 16)),
    ("GPipe", "yes", GPT, Plan("pp_gpipe", 16)),
    ("Chimera", "yes", GPT, Plan("pp_chimera", 16)),
    ("PipeDream (asynchronous)", "no", Setting(**SMALL, dtype="bf16"), Plan("pp_pipedream", 16)),
    ("TeraPipe", "no", GPT, Plan("pp_terapipe", 2)),
    ("gradient accumulation", "yes", GPT, Plan("dp", 4)),
    ("recompute", "yes", GPT, Plan("recompute")),
    ("chain recompute", "yes", GPT, Plan("coshard=8,recompute_pieces=1")),
    ("swap", "yes", GPT, Plan("swap")),
    ("ByteScheduler", "no", ON_CPU, Plan("cross_barrier")),
    ("all-reduce overlap", "by the runtime", GPT, Plan("dp")),  # as in every plan
]

NEW_PLANS = [  # section 8.2
    ("co-shard", "yes", GPT, Plan("coshard:4=8,recompute=1")),
    ("interlaced pipeline", "yes", GPT, Plan("pp_interlaced=4,tp=2", 16)),
    ("3F1B", "yes", EVOFORMER, Plan("pp_3f1b=4,dp=2", 16)),
]

DEGRADED = {"nnScaler": (Plan("pp=4,{4},tp=8", 512), 6), "DeepSpeed": (Plan("zero3=8,tp=4,recompute,offload=1", 64), 60),
            "Megatron-LM": (Plan("tp=32,recompute", 512), 82)}
STAGES = (2, 4, 8, 16)  # of figure 12
# nnScaler's table 7 without any order, its first two, and all.
ORDERS = [
    ("no constraints", []),
    ("first", ["op_order(F(i, m + 2, 1), F(i, m + 1, 2))"]),
    ("first two", ["op_order(F(i, m + 2, 1), F(i, m + 1, 2))", "op_order(F(i, m + 1, 2), F(i, m, 3))"]),
    ("all", ["op_order(F(i, m + 2, 1), F(i, m + 1, 2))", "op_order(F(i, m + 1, 2), F(i, m, 3))",
             "op_order(F(i, m, 3), B(i, m - (stages - i - 1)))"]),
]


def figure9(rows):
    """AlphaFold2 on DGX-2, under the plans of DGX-1."""
    for name, said in ("alphafold-16-dgx1-dap", 1.5), ("alphafold-32-dgx1-deepspeed", 1.1):
        row = next(row for row in rows if row.name == name)
        yield replace(row, name=name.replace("dgx1", "dgx2"), said=said, source="nnScaler fig. 9", cluster="eager-dgx2",
                      judged=False)


def mechanisms(bench, rows):
    yield f"{'mechanism':30}{'paper':16}{'plan':32}here"
    for name, said, setting, plan in rows:
        found = bench.price(setting, plan.plan, plan.cuts()[0])
        yield f"{name:30}{said:16}{plan.plan:32}{brief(found)}"


def table8(bench):
    yield from mechanisms(bench, MECHANISMS + NEW_PLANS)


def degradation(row):
    """Throughput of Swin on 32 that is lost from DGX-2 to DGX-1 (section 8.3.5)."""
    def lines(bench):
        yield f"{'system':14}{'published':>10}{'predicted':>10}"
        for name, (plan, said) in DEGRADED.items():
            fast, slow = (bench.priced(replace(row.setting(), cluster=c), plan)[1] for c in ("eager-dgx2", "eager-dgx1"))
            lost = f"{1 - fast['seconds'] / slow['seconds']:.0%}" if "seconds" in fast and "seconds" in slow else "-"
            yield f"{name:14}{said:>9}%{lost:>10}"
    return lines


def search_cost(rows):
    """CPU seconds to plan each row under the paper's plan."""
    def lines(bench):
        for row in rows:
            found = bench.price(row.setting(), row.ours.plan, row.ours.cuts()[0])
            yield f"{row.name:30}{row.ours.plan:32}{found['took']:8.1f} s"
    return lines


def order_search(bench):
    """Twice as many micro-batches as stages; a forward takes 1, a backward 2."""
    yield f"{'stages':>8}  {'constraints':16}{'seconds':>8}  makespan"
    for stages in STAGES:
        for name, orders in ORDERS:
            file = bench.folder / "orders.lua"
            body = "\n".join(f"      {order}" for order in orders)
            file.write_text("forwards = 3\n\nfunction order()\n  for i = 0, stages - 1 do\n    for m = 0, micro_batches - 1 do\n"
                            f"{body}\n    end\n  end\nend\n")
            found = bench.output(f"3f1b {stages} {name}", [
                BUILD / "bin" / "nnaot-plan", "schedule", "--stages", stages, "--micro-batches", 2 * stages, "--b", 1, "--w", 1,
                "--kind", "search", "--constraints", file])
            yield f"{stages:8}  {name:16}{found['took']:8.2f}  {found.get('why') or found['lines'][-1].split('; peak')[0]}"


def tables(rows):
    swin = next(row for row in rows if row.name.startswith("swin-32"))
    return [
        Table("nnscaler-degradation", "section 8.3.5", "throughput that Swin on 32 loses from DGX-2 to DGX-1", degradation(swin)),
        Table("nnscaler-search", "fig. 11", "a search takes less than 150 s for Swin, and about 150 s for T5", search_cost(rows)),
        Table("nnscaler-orders", "fig. 12", "60 s at most with all constraints, 11.7 times faster than without for 4 stages, and "
              "more than an hour without for 8", order_search),
        Table("nnscaler-mechanisms", "table 8", "14 of 17 mechanisms, and three new plans (8.2)", table8),
    ]
