// nnaot-plan: planning questions.
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
//     nnaot-plan blocks gpt2.onnx -g 2 --plan tp --loss 'next_token(logits,input_ids)'
//
// The questions are those of the passes and of the solver.  Each has a file with its options; this
// file lists them.

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "crash.h"
#include "heap.h"
#include "questions.h"

static const Question *const questions[] = {&question_rvd, &question_solve,  &question_schedule,
                                            &question_fit, &question_blocks, &question_calibrate};
enum { N_QUESTIONS = sizeof questions / sizeof *questions };

static const char *name_of(const Question *q) {
  return strrchr(q->program.name, ' ') + 1;
}

int main(int argc, char **argv) {
  crash_watch("nnaot-plan");
  heap_keep();
  static Strings words; // static: reachable until the end, for leak checkers
  const Question *q = NULL;
  for (int i = 0; argc > 1 && i < N_QUESTIONS; i++)
    if (str_equal(argv[1], name_of(questions[i]))) q = questions[i];
  // Without a known question, there is the help of all.
  if (!q) {
    Arena *a = arena_new();
    StrBuf b = {.arena = a};
    strbuf_add(&b, "Answers questions about plans:\n\n");
    for (int i = 0; i < N_QUESTIONS; i++)
      strbuf_addf(&b, "      %-12s%s\n", name_of(questions[i]), questions[i]->about);
    strbuf_add(&b, "\n'nnaot-plan QUESTION --help' lists its options.");
    Program program = {"nnaot-plan", "nnaot-plan QUESTION [OPTIONS]", b.at, NULL, 0, NULL, NULL};
    int status = options_parse(&program, argc, argv, &words);
    if (status < 0 && words.n)
      status = usage_error(&program, "there is no question '%s'", words.at[0]);
    else if (status < 0)
      status = usage_error(&program, "no question is given");
    arena_free(a);
    return status;
  }
  int status = options_parse(&q->program, argc - 1, argv + 1, &words);
  if (status >= 0) return status;
  if (words.n > q->of_file)
    return usage_error(&q->program, q->of_file ? "more than one file: '%s'" : "unexpected '%s'",
                       words.at[q->of_file]);
  status = options_check_needed(&q->program);
  if (status) return status;
  return q->answer(&q->program, words.n ? words.at[0] : "");
}
