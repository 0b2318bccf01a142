"""AutoDDL's other rows, and its experiments without a speedup of one plan over another (Chen et al. 2023), for papers.py.

Optimizers, micro-batches and the type are those of papers.py's rows.  Shorter steps are speedups here: 17.7 % less is
1 / (1 - 0.177).
"""

from papers_bench import Plan, Row, Table

GRIDS = {16: "2x8", 32: "4x8", 64: "4x16"}  # of Megatron-like plans, the fastest
LESS = {16: 0.03, 32: 0.088, 64: 0.177}  # of VGG13's step (5.2.2)
WIDE, DEEP = (20, 8192, 64), (36, 4096, 32)  # section 5.4, in 1024 tokens
# Nodes, rows and stages are the paper's, other degrees those with which Megatron's plan fits. 64 micro-batches leave two rows to
# each of 8 ranks.
TABLE_3 = [
    ("wide", 128, 503 / 315, WIDE, Plan("dp=8,tp=16,recompute", 128), Plan("dp=8,search=16,recompute=1", 128)),
    ("deep", 64, 710 / 443, DEEP, Plan("pp=2,dp=4,tp=8,recompute", 128), Plan("pp=2,dp=4,search=8,recompute=1", 128)),
    ("deep", 128, 807 / 508, DEEP, Plan("pp=2,dp=8,tp=8,recompute", (128, 64)), Plan("pp=2,dp=8,search=8,recompute=1", 64)),
]


def rows():
    for ranks, grid in GRIDS.items():
        said = round(1 / (1 - LESS[ranks]), 2)
        yield Row(f"autoddl-vgg13-megatron-{ranks}", said, "AutoDDL fig. 9", "vgg13", (), 8 * ranks, ranks, "eager-daint",
                  Plan(f"megatron_dense.lua={grid}"), Plan("search"), "f32", judged=False, optimizer="sgd")
    for name, ranks, said, size, theirs, ours in TABLE_3:
        yield Row(f"autoddl-{name}-{ranks}", round(said, 2), "AutoDDL table 3", "gpt", size, 8 * ranks, ranks, "eager-daint",
                  theirs, ours, "f32", {"tokens": 1024}, judged=False, optimizer="sgd")
    # On two servers; the second is data parallelism.
    for ranks, less in (8, 0.715), (16, 0.635):
        yield Row(f"autoddl-vgg13-cloud-{ranks}", round(1 / (1 - less), 2), "AutoDDL fig. 10", "vgg13", (), 16 * ranks, ranks,
                  f"eager-a100/{ranks // 2}", Plan("dp"), Plan("search"), judged=False, optimizer="sgd")
    yield Row("autoddl-gpt-cloud-32", round(1 / (1 - 0.1), 2), "AutoDDL fig. 10", "gpt", (28, 4096, 32), 2048, 32, "eager-a100",
              Plan("dp=2,tp=16,recompute", (64, 128)), Plan("dp=2,search=16,recompute=1", (256, 128)), more={"tokens": 1024},
              judged=False, optimizer="sgd")


def script(part, *arguments):
    return lambda bench: bench.script("autoddl.py", part, *arguments)


def tables():
    return [
        Table("autoddl-products", "fig. 6", "of order n^2 / p^(2/3), where 2-D algorithms have n^2 / p^(1/2)", script("products")),
        Table("autoddl-dense", "fig. 7", "the best grid of each dense layer of VGG13, found by exhaustive search", script("vgg13")),
        Table("autoddl-methods", "fig. 8", "near the optimum in 2 to 4 orders of magnitude less time than exhaustive search",
              script("methods")),
        *(Table(f"autoddl-transformer-{n}", "fig. 9", "published in brackets", script("steps", "--ranks", str(n)))
          for n in (64, 128, 256)),
    ]
