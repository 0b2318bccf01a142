// Raising: ops written out by an exporter become one op of ours.
//
//     layer and RMS normalisation     raise_norm.c
//     sigmoid and softplus            raise_sigmoid.c
//     GELU and swish                  raise_gelu.c
//     softmax and its logarithm       raise_softmax.c
//     attention                       raise_attention.c, raise_mask.c
//     products of experts             raise_experts.c
//
// One op has one kernel that reads its operands once, and a gradient that needs neither the scores
// of attention nor the six intermediate results of a norm. A pattern with inner values that are
// read outside is left alone.
//
// The module must be simplified: there a mean is reduce_sum and scale, x*x is square, and known
// numbers are in attributes.
//
// With say=true, notes report the number of recognised attentions, and why others stay products.

#include "raise.h"
#include "pass.h"

static const struct {
  RaiseFn *raise;
  const char *what; // for --stats
} patterns[] = {
    {raise_norm, "norms"},
    {raise_sigmoid, "sigmoid"},
    {raise_softplus, "softplus"},
    {raise_gelu, "gelu"},
    {raise_gelu_tanh, "gelu_tanh"},
    {raise_swish, "swish"},
    {raise_softmax, "softmax"},
    {raise_log_softmax, "log_softmax"},
    {raise_attention, "attention"},
    {raise_grouped_heads, "attention of grouped heads"},
    {raise_seq_major, "attention with the sequence first"},
    {raise_experts, "products of experts"},
};

// Raises all matches of the pattern. Returns their number.
static int raise_all(Raise *r, RaiseFn *raise) {
  Builder *b = &r->b;
  int n = 0;
  r->missed.n = 0;
  for (Op *op = b->g->first, *next; op && !b->failed; op = next) {
    next = op->next; // all ops of the pattern precede its root
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
    // A raised pattern may close another one, so each is repeated.
    Raise attention = r;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
      for (int n; (n = raise_all(&r, patterns[i].raise)) > 0; drop_dead(g))
        opt_stat(o, n, patterns[i].what);
      if (patterns[i].raise == raise_attention) attention = r;
    }
    if (r.b.failed) return false;
    for (int i = 0; i < attention.missed.n; i++)
      opt_stat(o, 1, str_format(r.scratch, "attention left: %s", attention.missed.at[i].why));
    // Notes name the attentions that are left, and why.
    if (opt_bool(o, "say", false)) {
      int n = 0;
      for_each_op(op, attention.b.g)
        n += op->kind == OP_attention;
      if (n) diag_note(d, NULL, "%d attention%s recognised", n, n == 1 ? " is" : "s are");
      for (int k = 0; k < attention.missed.n; k++)
        diag_note(d, attention.missed.at[k].loc, "this attention is not recognised: %s",
                  attention.missed.at[k].why);
    }
  }
  return true;
}
