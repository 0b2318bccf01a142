#!/usr/bin/env python3
"""The headline experiments of nnScaler, SuperScaler, AutoDDL and TAP, priced:  tests/bench/papers.py [ROW …] [--list]

For each row: the commands, the predicted seconds of a step under the paper's baseline and the paper's plan, what the ranks
need, and the speedup, predicted and published.  Experiments without a speedup are tables.  Seconds of planning, in brackets, and
their limits are CPU seconds.  Judged rows are here; other rows, and tables, are in papers_nnscaler.py and its like.

    tests/bench/papers.py swin-8 mbart                rows and tables whose names begin so; all of them without
    tests/bench/papers.py --results FILE              resumes: what FILE has is not computed again
    tests/bench/papers.py --auto 300                  the plan of `auto` too, if it ends within so many seconds
    tests/bench/papers.py --only-auto 300             that alone, for a long campaign with --results
    tests/bench/papers.py --commands --keep DIR       prints the commands of rows and runs nothing; DIR has the models and plans
    tests/bench/papers.py --verbose --keep DIR tap    prints each command as it runs, those of tables, too

Models have the papers' sizes (paper_models.py): shapes, without weights. Clusters are the papers' (clusters/eager-*.lua), with
PyTorch in eager mode; each figure has its source there. Memory is that of the devices. A plan that is refused, or does
not fit, shows the message; its price is that of the same plan on devices with more memory, in brackets.

FITTED: one parameter on one row. AutoDDL's bandwidth on Piz Daint, 4.4 GB/s in clusters/eager-daint.lua, is the one with which data
parallelism of VGG13 takes four times as long as its plan (AutoDDL, section 5.2.2); the theoretical peak of 8.5 to 10 gives 2.1.
Table 3 is judged by it. All other figures are those of the citations in the clusters' files.

Sums between ranks are in f32, as in nnaot's steps: the papers do not name a type. In 16 bits (`half_comm` of a cluster), as
Megatron-LM and DeepSpeed have them in programs of fp16, the price of Swin on 32 over Megatron-LM is 4.2.

A row is `within` if the predicted speedup is within 20 % of the published one. Rows in brackets are not judged.
"""

import pathlib
import shlex
import sys
import tempfile
import textwrap

import papers_autoddl
import papers_nnscaler
import papers_superscaler
import papers_tap
from papers_bench import Bench, Paper, Plan, Row, show
from papers_causes import CAUSES
from row_options import is_asked, row_parser

WITHIN = 0.2
FITTED = {"autoddl-vgg13-64"}

SWIN = {4: (32, 512, 16), 8: (40, 768, 24), 16: (48, 1024, 32), 32: (56, 1536, 32)}  # nnScaler, table 9
T5 = {4: (48, 2048, 32), 8: (64, 3072, 48), 16: (64, 4096, 64), 32: (64, 6144, 96)}
T5_WORDS = {4: 530_000, 8: 830_000, 16: 1_460_000, 32: 2_100_000}  # of the totals there; 12 GB in the 21B model (8.3.3)
ALPHAFOLD = {16: (96, 1024, 32), 32: (128, 1024, 32)}
MBART = (48, 5120, 32)  # SuperScaler, table 2, 16 GPUs; 500,000 words (section 6.1)
WINDOW = 48  # of Swin on images of 1536 (nnScaler's evaluation)


def halves(most):
    """Down to one micro-batch: those after the first that does not fit are not tried."""
    return tuple(most >> i for i in range(most.bit_length()))


def swin_rows(bias):
    """One image in each micro-batch of a rank; both systems as in nnScaler, section 8.3.2."""
    more = {"window": WINDOW, **({"bias": True} if bias else {"scores": True})}
    ours = {4: ("pp=2,{4},tp=2", 512), 8: ("pp=4,{6},tp=2", 512), 16: ("pp=4,{4},tp=4", 512), 32: ("pp=4,{4},tp=8", 512)}
    for ranks, cluster, said in (4, "dgx2", 1.0), (8, "dgx2", 1.2), (16, "dgx2", 1.5), (32, "dgx2", 1.5), (16, "dgx1", 1.9), (
            32, "dgx1", 3.5):
        tp = 2 if ranks == 4 else 4
        zero = Plan(f"zero3={ranks // tp},tp={tp},recompute,offload=1", 512 * tp // ranks)
        source = "nnScaler fig. 7" if cluster == "dgx2" else "nnScaler fig. 10a"
        yield Row(f"swin-{ranks}-{cluster}-deepspeed", said, source, "swin", SWIN[ranks], 512, ranks, f"eager-{cluster}", zero,
                  Plan(*ours[ranks]), more=more, judged=ranks > 4)
    yield Row("swin-32-dgx1-megatron", 6.6, "SuperScaler fig. 12a", "swin", SWIN[32], 512, 32, "eager-dgx1",
              Plan("tp=32,recompute", 512), Plan(*ours[32]), more=more)


def t5_rows():
    """Sections 8.3.3: the table over all devices, other layers in four stages."""
    for ranks, said in (8, 1.5), (16, 1.6), (32, 2.5):
        yield Row(f"t5-{ranks}-dgx2-deepspeed", said, "nnScaler fig. 8", "t5", T5[ranks], 512, ranks, "eager-dgx2",
                  Plan(f"zero3={ranks // 4},vp=4,recompute,offload=1", halves(512 * 4 // ranks)),
                  Plan(f"pp_interlaced=4,tp={ranks // 4},recompute", halves(512)), more={"words": T5_WORDS[ranks]})


def mbart_rows():
    """SuperScaler, section 6.2: layers within servers, the table over all of them."""
    ours = Plan("pp_interlaced=2,tp=8,recompute", halves(512))
    for name, said, theirs in ("deepspeed", 4.9, Plan("zero3=2,vp=8,recompute,offload=1", halves(256))), (
            "megatron", 2.8, Plan("vp=16,recompute", halves(512))):
        yield Row(f"mbart-16-dgx1-{name}", said, "SuperScaler fig. 12c", "t5", MBART, 512, 16, "eager-dgx1", theirs, ours)


def alphafold_rows(layers):
    """Three forwards and one backward; nnScaler, section 8.3.4 and 8.3.5; recompute by layer, as all systems there (8.3.1).

    The stages of a replica are within a server, as three forwards cross them: between servers, 6 layers on 32 take 20.9 s instead
    of 13.4.  3F1B on 32 has ZeRO-1 over its data-parallel ranks: with the states on each rank it needs 40.2 GB, and nnScaler
    disables ZeRO in the experiments of figure 8 only (8.3.3).  DAP replicates the weights (SuperScaler, 6.1); with Adam in mixed precision
    2.6 G of them need 42 GB on each rank, so the row's price is that of larger devices.  The paper trains it with 4-way DAP (6.2)
    and names no optimizer."""
    size = {n: (layers or s[0], *s[1:]) for n, s in ALPHAFOLD.items()}
    for ranks, said, theirs, ours in (
            (16, 1.1, Plan("zero3=16,recompute", 8), Plan("dp=4,pp_3f1b=4,recompute", 32)),
            (32, 1.4, Plan("zero3=16,tp=2,recompute", 8), Plan("zero1=8,pp_3f1b=2,tp=2,recompute", 16))):
        yield Row(f"alphafold-{ranks}-dgx1-deepspeed", said, "nnScaler fig. 10b", "evoformer", size[ranks], 128, ranks,
                  "eager-dgx1", theirs, ours)
    yield Row("alphafold-16-dgx1-dap", 1.5, "SuperScaler 6.2", "evoformer", size[16], 128, 16, "eager-dgx1",
              Plan("dp=4,dap=4,recompute", 32), Plan("dp=4,pp_3f1b=4,recompute", 32))


def autoddl_rows():
    """GPT with one sequence in each micro-batch of a rank, for memory, and SGD: the paper names no optimizer, and Adam's states do
    not fit beside 16.5 G weights in f32 on dp=4,tp=16.  VGG13 at once, with 8 images a rank (5.2.2)."""
    yield Row("autoddl-wide-64", 1.59, "AutoDDL table 3", "gpt", (20, 8192, 64), 512, 64, "eager-daint",
              Plan("dp=4,tp=16,recompute", 128), Plan("dp=4,search=16,recompute=1", 128), "f32", {"tokens": 1024}, optimizer="sgd")
    for ranks in 16, 32, 64:
        yield Row(f"autoddl-vgg13-{ranks}", 4.0, "AutoDDL fig. 9", "vgg13", (), 8 * ranks, ranks, "eager-daint", Plan("dp"),
                  Plan("search"), "f32", judged=ranks == 64, optimizer="sgd")


def papers(o):
    """A row of two papers stands under the first one."""
    nnscaler = [*swin_rows(not o.no_bias), *t5_rows(), *alphafold_rows(o.layers)]
    nnscaler += list(papers_nnscaler.figure9(nnscaler))
    return [Paper("nnScaler (OSDI 2024)", nnscaler, papers_nnscaler.tables(nnscaler)),
            Paper("SuperScaler (2023)", [*mbart_rows(), *papers_superscaler.rows()], papers_superscaler.tables()),
            Paper("AutoDDL (2023)", [*autoddl_rows(), *papers_autoddl.rows()], papers_autoddl.tables()),
            Paper("TAP (2023)", [], papers_tap.tables())]


def verdict(row, speedup):
    """Returns whether the row is within the limit, and a word on it."""
    within = speedup is not None and abs(speedup / row.said - 1) <= WITHIN
    word = "within" if within else "no"
    return within, "fitted" if row.name in FITTED else word if row.judged else f"({word})"


def show_row(bench, row):
    """Prints the prices of both plans; returns whether their ratio is within the limit."""
    both = [(name, plan, *bench.priced(row.setting(), plan)) for name, plan in (("theirs", row.theirs), ("ours", row.ours))]
    theirs, ours = (priced.get("seconds") for *_, priced in both)
    speedup = theirs / ours if theirs and ours else None
    within, word = verdict(row, speedup)
    print(f"{row.name:30} {f'{speedup:.2f}' if speedup else '-':>6} of {row.said:<5}{word:9}{row.source}")
    if word == "no" and row.name in CAUSES:
        print(textwrap.fill(CAUSES[row.name], 130, initial_indent="    cause: ", subsequent_indent="    "))
    for name, plan, here, priced in both:
        print(f"    {plan.plan}\n    {show(name, here, priced)}")
    if bench.o.auto:
        print(f"    {bench.auto(row, bench.o.auto)}")
    print(end="", flush=True)
    return within


def show_table(bench, table):
    print(f"{table.name:30} {table.source}: {table.said}", flush=True)
    for line in table.lines(bench):
        print(f"    {line}", flush=True)


def show_commands(bench, row):
    for plan in row.theirs, row.ours:
        command = bench.command(row.setting(), plan.plan, plan.cuts()[0], bench.cluster(row.cluster, 1))
        print(f"{row.name}: {shlex.join(map(str, command))}")


def show_paper(bench, paper, wanted):
    """Returns whether each judged row is within the limit."""
    rows = [row for row in paper.rows if wanted(row.name)]
    tables = [table for table in paper.tables if wanted(table.name)]
    o, judged = bench.o, []
    if rows or tables and not (o.commands or o.only_auto):
        print(f"\n## {paper.title}\n")
    for row in rows:
        if o.list:
            print(f"{row.name:32}{row.said:6}  {row.source}")
        elif o.commands:
            show_commands(bench, row)
        elif o.only_auto:
            print(f"{row.name:30} {row.source}\n    {bench.auto(row, o.only_auto)}", flush=True)
        else:
            within = show_row(bench, row)
            judged += [within] if row.judged else []
    for table in tables:
        if o.list:
            print(f"{table.name:32}        {table.source}")
        elif not (o.commands or o.only_auto):
            show_table(bench, table)
    return judged


def main():
    parser = row_parser(__doc__, check="fails if a judged row is not within, or a plan is refused")
    parser.add_argument("--commands", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--auto", type=int, metavar="SECONDS")
    parser.add_argument("--only-auto", type=int, metavar="SECONDS")
    parser.add_argument("--layers", type=int, help="of AlphaFold2, instead of 96 and 128")
    parser.add_argument("--no-bias", action="store_true", help="Swin without biases of relative positions")
    o = parser.parse_args()
    if o.keep:
        o.keep.mkdir(parents=True, exist_ok=True)
    judged = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(o, o.keep or folder)
        for paper in papers(o):
            judged += show_paper(bench, paper, lambda name: is_asked(o, name))
    if not (o.list or o.commands or o.only_auto):
        print(f"\n{sum(judged)} of {len(judged)} judged rows within {WITHIN:.0%} of the published speedup, fitted ones included")
    if o.check and (bench.refused() or not all(judged)):
        sys.exit("\n".join(f"{r['key']}: {r['why']}" for r in bench.refused()) or "a judged row is not within")


if __name__ == "__main__":
    main()
