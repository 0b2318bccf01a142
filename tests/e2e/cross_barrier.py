"""Updates deferred to the next step change no bit.

    cross_barrier.py      mlp, resnet and gpt2 with dropout, on 2 and 4 ranks: threads, and processes; with micro-batches,
                          accumulation, labels that are counted, tensor parallelism, recompute, swap, 16 bits, optimizers
                          with none to two states

Each is trained for 5 steps under a plan and under the same plan with `cross_barrier`.  Losses, gradient norms, losses of
evaluations in between, and weights are bit-identical.  A checkpoint of each, from the middle, is resumed under the other,
with the results of an uninterrupted run.  The traffic of a step is as predicted.
"""

import sys

from same_bits import ADAM, LAMB, MOMENTUM, SGD, Program, counted, differences, run_cases

# Model, ranks, plan without and with, flags, number of processes.
CASES = [("mlp", 2, "dp", "cross_barrier", ADAM, 0),
         ("mlp", 4, "dp", "cross_barrier", MOMENTUM, 4),
         ("mlp", 2, "dp", "cross_barrier", [*SGD, "--micro-batches", 2], 0),
         ("mlp", 2, "dp", "cross_barrier", [*ADAM, "--loss", "cross_entropy(logits,ignore_index=3)"], 0),
         ("mlp", 2, "tp3d", "tp3d=2,cross_barrier=1", SGD, 0),  # the norm, deferred, beside its members in a bucket
         ("gpt2_drop", 2, "dp", "cross_barrier", ADAM, 2),
         ("gpt2_drop", 4, "dp", "cross_barrier", [*LAMB, "--micro-batches", 2], 0),
         ("gpt2_drop", 2, "dp", "cross_barrier", [*ADAM, "--dtype", "bf16", "--micro-batches", 2], 0),
         ("gpt2_drop", 2, "dp", "cross_barrier", [*MOMENTUM, "--batch", 4, "--accumulate", 2], 2),
         ("gpt2_drop", 4, "dp=2,tp=2", "dp=2,tp=2,cross_barrier=1", SGD, 4),
         ("gpt2_drop", 2, "cp=2", "cp=2,cross_barrier=1", ADAM, 2),
         ("gpt2_drop", 2, "sp", "sp=2,cross_barrier=1", ADAM, 0),
         ("gpt2_drop", 2, "dp=2,recompute=1", "dp=2,recompute=1,cross_barrier=1", ADAM, 0),
         ("gpt2_drop", 2, "dp=2,swap=1", "dp=2,swap=1,cross_barrier=1", ADAM, 0),
         ("resnet", 2, "dp", "cross_barrier", ADAM, 0),
         ("resnet", 4, "dp", "cross_barrier", MOMENTUM, 4)]


def one_case(folder, model, ranks, plain, plan, flags, processes):
    before = Program(folder, "before", model, ranks, plain, flags)
    after = Program(folder, "after", model, ranks, plan, flags)
    carried = counted(after.stats, "in flight at the end of a step")
    wrong = differences(before, after, processes)
    if not carried: wrong.append("nothing carried")
    print(f"{model:10}{ranks:2} {plan:34} {' '.join(map(str, flags)):62}{carried:4} "
          f"{', '.join(['FAILED', *wrong] if wrong else ['ok'])}", flush=True)
    return not wrong


sys.exit(run_cases(one_case, CASES, sys.argv[1:]))
