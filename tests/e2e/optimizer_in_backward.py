"""Updates in the backward pass give bit-identical weights.

    optimizer_in_backward.py      mlp, resnet and gpt2 with dropout, on 1 to 4 ranks: threads, and processes; with tensor and
                                  context parallelism, ZeRO, recompute, swap, offload, 16 bits, optimizers with none to two states

Each is trained for 5 steps under a plan and under the same plan with `optimizer_in_backward`, or with `offload`, which
implies it if states are smaller than gradients.  Losses, gradient norms, losses of evaluations in between, and weights are
bit-identical.  A checkpoint of each, from the middle, is resumed under the other, with the results of an uninterrupted run.
The traffic of a step is as predicted, and no rank needs more memory.
"""

import sys

from same_bits import ADAM, LAMB, MOMENTUM, SGD, Program, counted, differences, run_cases

# Model, ranks, plan without and with, flags, number of processes.
CASES = [("mlp", 1, "dp", "optimizer_in_backward", SGD, 0),
         ("mlp", 2, "dp", "optimizer_in_backward", ADAM, 2),
         ("resnet", 1, "dp", "optimizer_in_backward", MOMENTUM, 0),
         ("resnet", 2, "dp", "offload=2,optimizer_in_backward=1", ADAM, 0),
         ("gpt2_drop", 1, "dp", "optimizer_in_backward", LAMB, 0),
         ("gpt2_drop", 2, "dp", "optimizer_in_backward", ADAM, 2),
         ("gpt2_drop", 1, "dp", "offload", ADAM, 0),
         ("gpt2_drop", 2, "dp=2,swap=1", "dp=2,swap=1,offload=1", [*ADAM, "--dtype", "bf16"], 0),
         ("gpt2_drop", 4, "dp=2,tp=2", "dp=2,tp=2,optimizer_in_backward=1", MOMENTUM, 4),
         ("gpt2_drop", 4, "tp=4,recompute=1", "tp=4,recompute=1,optimizer_in_backward=1", ADAM, 0),
         ("gpt2_drop", 4, "cp=4", "cp=4,optimizer_in_backward=1", ADAM, 4),
         ("gpt2_drop", 2, "cp_zero3=2", "cp_zero3=2,offload=1", [*ADAM, "--dtype", "bf16"], 0),
         ("gpt2_drop", 4, "cp_zero3=2,dp=2", "cp_zero3=2,dp=2,offload=1", ADAM, 0),
         ("gpt2_drop", 2, "zero1=2", "zero1=2,offload=1", LAMB, 0),
         ("gpt2_drop", 4, "zero2=4", "zero2=4,optimizer_in_backward=1", ADAM, 4),
         ("gpt2_drop", 4, "zero3=4,recompute=1", "zero3=4,recompute=1,offload=1", ADAM, 0)]


def one_case(folder, model, ranks, plain, plan, flags, processes):
    before = Program(folder, "before", model, ranks, plain, flags)
    after = Program(folder, "after", model, ranks, plan, flags)
    early = counted(after.stats, "ops of the update in backward")
    needs = [counted(program.stats, "bytes at the peak") for program in (before, after)]
    wrong = differences(before, after, processes)
    if not early: wrong.append("nothing early")
    if needs[1] > 1.001 * needs[0]: wrong.append("no less memory")
    print(f"{model:10}{ranks:2} {plan:42} {' '.join(map(str, flags)):46}{early:5}{needs[0]:10}{needs[1]:10} "
          f"{', '.join(['FAILED', *wrong] if wrong else ['ok'])}", flush=True)
    return not wrong


sys.exit(run_cases(one_case, CASES, sys.argv[1:]))
