// nnaot-plan: planning questions without a model.
//
//     nnaot-plan rvd --shape 1024x8192 --from 'R(1)V(4)D(1,2)@0-7' --to 'R(4)V(1)D(1,2)@0-7'
//                    --cluster h100
//     all_reduce {0,2,4,6} {1,3,5,7}  201326592 bytes  6.61241e-05 s
//     total 6.61241e-05; p2p 0.000120248
//
//     nnaot-plan solve problem.json --seconds 10
//     cost 445
//     bound 445
//     gap 0
//     status optimal
//     [0, 0, 2, 1, 0]
//
//     nnaot-plan schedule --stages 2 --micro-batches 2 --kind 1f1b
//        0
//     0  F0F1..B0--B1--
//     1  ..F0B0--F1B1--..
//     makespan 9; span 9; bubble 0.333333; peak 2,1
//
// The questions are those of the passes and of the solver; here is the command line only.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "questions.h"

PlanOptions plan_options = {.shape = "",
                            .dtype = "f32",
                            .from = "",
                            .to = "",
                            .cluster = "cpu",
                            .file = "",
                            .method = "auto",
                            .seconds = 60,
                            .seed = 1,
                            .kind = "1f1b",
                            .chunks = 4,
                            .constraints = "",
                            .f = 1,
                            .b = 1,
                            .w = 1,
                            .memory = INFINITY,
                            .steps = 20,
                            .target = "cpu",
                            .output = "-"};

static const Option options[] = {
    GROUP("rvd: the cheapest communication from one placement of a tensor to another"),
    STRING("shape", 0, &plan_options.shape, "SHAPE", "of the tensor, such as 1024x1024"),
    STRING("dtype", 0, &plan_options.dtype, "TYPE", "of its elements: f32, bf16, f16, f64, i64 …"),
    STRING("from", 0, &plan_options.from, "RVD",
           "how it lies: R(copies)V(shares of a sum)D(parts of each dimension)@DEVICES, such as "
           "'R(1)V(2)D(1,2)@0-3'; devices are row-major over R, V and the dimensions"),
    STRING("to", 0, &plan_options.to, "RVD", "how it shall lie"),
    STRING("cluster", 0, &plan_options.cluster, "FILE.lua|NAME",
           "the devices and their links: cpu, v100-dgx1, v100-dgx2, a100, h100 or h200, of as "
           "many nodes as are asked for, or NAME:NODESxPER_NODE; or a file that says them"),
    GROUP("solve: a strategy for every node of a sharding problem"),
    NUMBER("seconds", 0, &plan_options.seconds, "N", "answer then with what there is"),
    NUMBER("work", 0, &plan_options.work, "N",
           "answer after so much work, the same on every machine: a second is about 600; 0: any"),
    STRING("method", 0, &plan_options.method, "NAME",
           "auto, or to compare it with: exhaustive, metropolis, descent"),
    INTEGER("seed", 0, &plan_options.seed, "N", "of whatever is random"),
    STRING("lp", 0, &plan_options.lp, "FILE",
           "write what exact reduction leaves as a 0/1 program in CPLEX's LP format"),
    FLAG("verbose", 0, &plan_options.verbose,
         "say on stderr how far it is; calibrate: what was measured"),
    GROUP("schedule: which block of a pipeline each device runs when"),
    INTEGER("stages", 0, &plan_options.stages, "P", "devices, each with one stage or more"),
    INTEGER("micro-batches", 0, &plan_options.micro_batches, "M", "of a step"),
    STRING("kind", 0, &plan_options.kind, "NAME",
           "gpipe, 1f1b, interleaved:CHUNKS, chimera, zb-h1, zb-h2, zb-v, dualpipe, interlaced, "
           "3f1b, or search: the shortest that is found of all of them and others"),
    INTEGER("chunks", 0, &plan_options.chunks, "N",
            "search: a device has at most so many, each a stage of its own"),
    NUMBER("f", 0, &plan_options.f, "T", "a device's time for the forward of a micro-batch"),
    NUMBER("b", 0, &plan_options.b, "T", "for the gradients of its inputs"),
    NUMBER("w", 0, &plan_options.w, "T", "for those of its weights"),
    NUMBER("comm", 0, &plan_options.comm, "T",
           "until what one device makes is on another; both are free meanwhile"),
    NUMBER("embed", 0, &plan_options.embed, "T",
           "interlaced: for each of the four uses of an embedding, on all devices"),
    NUMBER("memory", 0, &plan_options.memory, "LIMIT",
           "micro-batches that a device may hold at a time"),
    STRING("constraints", 0, &plan_options.constraints, "FILE.lua",
           "search in what this file leaves open; passes/schedule says how it is written"),
    GROUP("calibrate: the cluster file of the machines that this runs on"),
    INTEGER("ranks", 'g', &plan_options.ranks, "N",
            "threads of this process, each a rank; a launcher, such as mpirun, says it otherwise"),
    INTEGER("per-node", 0, &plan_options.per_node, "N",
            "ranks of a machine, if the launcher does not say it; neighbours are of one"),
    STRING("target", 0, &plan_options.target, "NAME", "cpu or cuda, as of nnaot"),
    INTEGER("steps", 0, &plan_options.steps, "N",
            "so many measurements, of which the median counts"),
    STRING("output", 'o', &plan_options.output, "FILE.lua", "write it here; -: standard output"),
    GROUP("Output"),
    FLAG("json", 0, &plan_options.json,
         "print one object: total, p2p, steps; or status, cost, bound, gap, ended, choices; or "
         "makespan, span, bubble, peak, chunks, bound, optimal, ops"),
};

static const Program program = {
    "nnaot-plan",
    "nnaot-plan rvd --shape SHAPE --from RVD --to RVD [--dtype TYPE] [--cluster C] [--json]\n"
    "       nnaot-plan solve FILE.json [--seconds N] [--work N] [--method NAME] [--seed N] [--lp "
    "FILE] "
    "[--json]\n"
    "       nnaot-plan schedule --stages P --micro-batches M [--kind NAME] [--f T] [--b T] [--w T] "
    "[--comm T]\n"
    "                           [--embed T] [--chunks N] [--memory LIMIT] [--constraints FILE.lua] "
    "[--json]\n"
    "       [mpirun -n N] nnaot-plan calibrate [--ranks N] [--per-node N] [--target NAME] [--steps "
    "N] "
    "[-o FILE.lua]",
    "Answers questions about plans that need no model.  `rvd` prints a line for each primitive, "
    "with\n"
    "its groups of devices, the bytes that all of them send, and its seconds; the last line is "
    "the\n"
    "sum, beside the seconds of plain send/recv.  `solve` reads a problem in the format of the\n"
    "ASPLOS 2025 contest; the last line is the strategy of each node.  `schedule` draws a line\n"
    "for each device; the last line is when all ends, the longest time of a device from its first\n"
    "block to its last, the part of all devices' time that is idle, and the micro-batches that "
    "each\n"
    "holds at most.  `calibrate` makes an executable of collectives and kernels, runs it on all "
    "ranks, and\n"
    "fits what a --cluster is asked to say of links and devices.",
    options,
    sizeof options / sizeof *options,
    NULL,
    NULL,
};

typedef struct Question {
  const char *name;
  int (*answer)(const Program *);
  bool of_file;
  const char *takes; // names of options between blanks
} Question;

static const Question questions[] = {
    {"rvd", plan_rvd, false, " shape dtype from to cluster json "},
    {"solve", plan_solve, true, " seconds work method seed lp verbose json "},
    {"schedule", plan_schedule, false,
     " stages micro-batches kind f b w comm memory embed chunks constraints json "},
    {"calibrate", plan_calibrate, false, " ranks per-node target steps output verbose "},
};
enum { N_QUESTIONS = sizeof questions / sizeof *questions };

static const Question *find_question(const char *name) {
  for (int i = 0; i < N_QUESTIONS; i++)
    if (str_equal(name, questions[i].name)) return &questions[i];
  return NULL;
}

// Nothing that is said is without effect.
static int check_options(const Question *q) {
  for (int i = 0; i < program.n_options; i++) {
    const char *name = options[i].name;
    char word[32];
    snprintf(word, sizeof word, " %s ", name);
    if (options[i].kind != OPTION_group && option_given(name) && !strstr(q->takes, word))
      return usage_error(&program, "--%s has no effect with '%s'", name, q->name);
  }
  return 0;
}

int main(int argc, char **argv) {
  static Strings words; // static: what it points to is reachable until the end
  int status = options_parse(&program, argc, argv, &words);
  if (status >= 0) return status;
  if (!words.n) return usage_error(&program, "no question is given");
  const Question *q = find_question(words.at[0]);
  if (!q) return usage_error(&program, "there is no question '%s'", words.at[0]);
  if (words.n > 1 + q->of_file)
    return usage_error(&program, q->of_file ? "more than one file" : "more than one question");
  if (words.n > 1) plan_options.file = words.at[1];
  status = check_options(q);
  return status ? status : q->answer(&program);
}
