// --prove=MODEL, the proof of a module that may have been edited: see prove_text.h.

#include "prove_text.h"

#include "ir/verify/verify.h"
#include "prove/prove.h"

#define RIGHT                                                                                      \
  "MODEL is the program right before shard, in a folder of --dump-dir the file before the one of " \
  "shard; for a dump of transform, the file before that"

// A model from before the gradients has other graphs than the training step.
static bool same_entries(const Module *model, const char *path, const Module *m, Diag *d) {
  const Graph *is = module_first_entry(model), *first = module_first_entry(m);
  if (!is || !first || str_equal(is->name, first->name)) return true;
  diag_error(d, NULL, "--prove: '%s' is the program '@%s', and this one is '@%s'", path, is->name,
             first->name);
  diag_hint(d, RIGHT);
  return false;
}

bool prove_text(const Module *model, const char *path, const Module *m, const char *name,
                struct ModelValues *values, Diag *d) {
  if (!module_verify(model, d) || !module_verify(m, d) || !same_entries(model, path, m, d))
    return false;
  bool proved =
      values ? prove_module_values(model, m, m->arena, values, d) : prove_module(model, m, d);
  if (proved) return true;
  diag_error(d, NULL, "'%s' does not compute '%s'", name, path);
  // An asynchronous program computes no model.
  if (!module_asynchronous(m) || module_asynchronous(model))
    diag_hint(d, "if MODEL is right, the errors above are differences; " RIGHT);
  return false;
}
