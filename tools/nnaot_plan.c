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
// The questions are those of the passes and of the solver; here is the command line only.

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
                            .seed = 1};

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
    FLAG("verbose", 0, &plan_options.verbose, "say on stderr how far it is"),
    GROUP("Output"),
    FLAG("json", 0, &plan_options.json,
         "print one object: total, p2p, steps; or status, cost, bound, gap, ended, choices"),
};

static const Program program = {
    "nnaot-plan",
    "nnaot-plan rvd --shape SHAPE --from RVD --to RVD [--dtype TYPE] [--cluster C] [--json]\n"
    "       nnaot-plan solve FILE.json [--seconds N] [--work N] [--method NAME] [--seed N] [--lp "
    "FILE] "
    "[--json]",
    "Answers questions about plans that need no model.  `rvd` prints a line for each primitive, "
    "with\n"
    "its groups of devices, the bytes that all of them send, and its seconds; the last line is "
    "the\n"
    "sum, beside the seconds of plain send/recv.  `solve` reads a problem in the format of the\n"
    "ASPLOS 2025 contest; the last line is the strategy of each node.",
    options,
    sizeof options / sizeof *options,
    NULL,
    NULL,
};

typedef struct Question {
  const char *name;
  int (*answer)(const Program *); // NULL: not supported yet
  bool of_file;
  const char *takes; // names of options between blanks
} Question;

static const Question questions[] = {
    {"rvd", plan_rvd, false, " shape dtype from to cluster json "},
    {"solve", plan_solve, true, " seconds work method seed lp verbose json "},
    {"schedule", NULL, false, ""},
    {"calibrate", NULL, false, ""},
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
  const Question *q = argc > 1 ? find_question(argv[1]) : NULL;
  if (q && !q->answer) // its options are not known either
    return usage_error(&program, "'%s' is not supported yet", q->name);
  int status = options_parse(&program, argc, argv, &words);
  if (status >= 0) return status;
  if (!words.n) return usage_error(&program, "no question is given");
  q = find_question(words.at[0]);
  if (!q) return usage_error(&program, "there is no question '%s'", words.at[0]);
  if (!q->answer) return usage_error(&program, "'%s' is not supported yet", q->name);
  if (words.n > 1 + q->of_file)
    return usage_error(&program, q->of_file ? "more than one file" : "more than one question");
  if (words.n > 1) plan_options.file = words.at[1];
  status = check_options(q);
  return status ? status : q->answer(&program);
}
