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
    {raise_grouped_heads, "attention of grouped heads"},
    {raise_seq_major, "attention with the sequence first"},
};

// Raises the pattern wherever it is.  How often that was.
static int raise_all(Raise *r, RaiseFn *raise) {
  Builder *b = &r->b;
  int n = 0;
  for (Op *op = b->g->first, *next; op && !b->failed; op = next) {
    next = op->next; // all that the pattern is made of stands before its root
    b->at = op;
    b->origin = op_origin(op);
    if (!raise(r, op)) continue;
    drop_unread(op);
    n++;
  }
  return n;
}

bool pass_raise(Module *m, const PassOptions *o, Diag *d) {
  for_each_graph(g, m) {
    Raise r = {.b = {.g = g, .d = d}, .scratch = opt_scratch(o)};
    drop_dead(g);
    // Where one was, another may be closed that was not.
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
      for (int n; (n = raise_all(&r, patterns[i].raise)) > 0; drop_dead(g))
        opt_stat(o, n, patterns[i].what);
    if (r.b.failed) return false;
  }
  return true;
}
