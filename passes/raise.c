// Raising: ops written out by an exporter become the one op that they are.
//
//     layer and RMS normalisation     raise_norm.c
//     GELU and swish                  raise_gelu.c
//     softmax                         raise_softmax.c
//     attention                       raise_attention.c, raise_mask.c
//
// One op has one kernel that reads its operands once, and a gradient that needs neither the scores
// of attention nor the six intermediate results of a norm.  A pattern is left as it is when
// something inside it is read from outside.
//
// It wants a simplified module: there a mean is reduce_sum and scale, x*x is square, and numbers
// that the program knows stand in attributes.

#include "raise.h"
#include "pass.h"

static const struct {
  RaiseFn *raise;
  const char *what; // for --stats
} patterns[] = {
    {raise_norm, "norms"},
    {raise_gelu, "gelu"},
    {raise_gelu_tanh, "gelu_tanh"},
    {raise_swish, "swish"},
    {raise_softmax, "softmax"},
    {raise_attention, "attention"},
    {raise_seq_major, "attention with the sequence first"},
};

// Raises the first place where the pattern is.
static bool raise_one(Builder *b, RaiseFn *raise) {
  for_each_op(op, b->g) {
    b->at = op;
    b->origin = op_origin(op);
    if (raise(b, op)) return true;
    if (b->failed) return false;
  }
  return false;
}

bool pass_raise(Module *m, const PassOptions *o, Diag *d) {
  for_each_graph(g, m) {
    Builder b = {.g = g, .d = d};
    drop_dead(g);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
      while (raise_one(&b, patterns[i].raise)) {
        opt_stat(o, 1, patterns[i].what);
        drop_dead(g);
      }
    if (b.failed) return false;
  }
  return true;
}
