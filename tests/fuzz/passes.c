// The passes: a verified module goes through pipelines of training and of inference until a pass
// refuses it.  A pass may refuse it with a message; otherwise its result must verify.

#include "passes.h"

#include "fuzz.h"
#include "pass.h"

enum { MAX_STEPS = 16 };

static const char *const pipelines[][MAX_STEPS] = {
    {"simplify", "raise", "simplify", "channels_last", "simplify"},
    {"raise", "simplify", "autodiff", "optimizer(name=adamw clip=1)", "simplify",
     "lower_batch_norm", "channels_last", "simplify", "shard(mesh=2 plan=dp)", "comm",
     "bucket_grads(bucket=64)", "fuse", "plan_memory"},
    {"fold", "inline_calls", "fold", "autodiff", "simplify", "inline_calls"},
    {"loss", "lower_batch_norm", "shard(mesh=1 plan=dp)", "comm", "fuse", "plan_memory"},
};

static void run(Module *m, const char *const *steps, Diag *d) {
  for (int i = 0; i < MAX_STEPS && steps[i]; i++) {
    int errors = diag_errors(d);
    PipelineOptions o = {.bisect_limit = -1, .out = stderr};
    if (!pipeline_run(m, steps[i], &o, d)) {
      if (diag_errors(d) == errors) fuzz_fail("a pass refused without a word", steps[i]);
      return;
    }
    if (!module_verify(m, d)) fuzz_fail("what a pass made does not verify", steps[i]);
  }
}

void fuzz_passes(const Module *m, Diag *d) {
  for (size_t i = 0; i < sizeof pipelines / sizeof pipelines[0]; i++) {
    Module *copy = module_clone(m);
    run(copy, pipelines[i], d);
    module_free(copy);
  }
}
