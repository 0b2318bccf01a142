// The text form of modules: for any file, module_parse reports an error or returns a module that
//
//   - prints as text that parses to a module that prints the same, and
//   - if it passes the verifier, can be computed and differentiated and goes through the passes:
//     a pass may refuse it with a message, but not crash.

#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/analysis/work.h"
#include "ir/op.h"
#include "pass.h"
#include "passes.h"

const char fuzz_name[] = "text";

enum { MAX_ELEMENTS = 20000, MAX_VALUES = 400 };
static const double max_flops = 1e6;

// -- Mutations -------------------------------------------------------------------------------

typedef struct Piece {
  const char *at;
  int64_t n;
} Piece;

// Words, numbers, punctuation and lines of all files, for insertion elsewhere.
static struct {
  Piece *tokens, *lines;
  int64_t n_tokens, n_lines;
} found;

static bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '%' || c == '@' || c == '.';
}

// Returns the length of the token at `at`: a word with its sigil, or one other character.
static int64_t token_length(const char *at, const char *end) {
  int64_t n = 0;
  while (at + n < end && in_word(at[n]))
    n++;
  return n ? n : 1;
}

void fuzz_begin(const Seeds *seeds, Arena *a) {
  Vec(Piece) tokens = {0}, lines = {0};
  for (int i = 0; i < seeds->n; i++) {
    const char *end = seeds->at[i].at + seeds->at[i].n;
    for (const char *p = seeds->at[i].at; p < end; p += token_length(p, end))
      vec_push(a, &tokens, (Piece){p, token_length(p, end)});
    for (const char *p = seeds->at[i].at, *next; p < end; p = next) {
      next = memchr(p, '\n', (size_t)(end - p));
      next = next ? next + 1 : end;
      vec_push(a, &lines, (Piece){p, next - p});
    }
  }
  found.tokens = tokens.at;
  found.n_tokens = tokens.n;
  found.lines = lines.at;
  found.n_lines = lines.n;
}

// Returns a self-contained part of the file: one graph (`head` gets the first line), or all.
static Piece choose_part(const Seed *seed, Random *r, StrBuf *head) {
  Vec(Piece) graphs = {0};
  const char *end = seed->at + seed->n, *start = NULL;
  Arena *a = head->arena;
  for (const char *p = seed->at, *next; p < end; p = next) {
    next = memchr(p, '\n', (size_t)(end - p));
    next = next ? next + 1 : end;
    if (next - p > 6 && !memcmp(p, "module", 6)) strbuf_add_n(head, p, (size_t)(next - p));
    if (next - p > 6 && !memcmp(p, "graph ", 6)) {
      if (start) vec_push(a, &graphs, (Piece){start, p - start});
      start = p;
    }
  }
  if (start) vec_push(a, &graphs, (Piece){start, end - start});
  if (graphs.n < 8 || !head->n) {
    head->n = 0;
    return (Piece){seed->at, seed->n};
  }
  return graphs.at[random_below(r, graphs.n)];
}

static void replace(StrBuf *b, int64_t at, int64_t n, Piece by) {
  const char *old = b->at;
  int64_t size = (int64_t)b->n;
  StrBuf made = {.arena = b->arena};
  strbuf_add_n(&made, old, (size_t)at);
  strbuf_add_n(&made, by.at, (size_t)by.n);
  strbuf_add_n(&made, old + at + n, (size_t)(size - at - n));
  *b = made;
}

static void change_token(StrBuf *b, Random *r) {
  int64_t at = random_below(r, (int64_t)b->n);
  while (at > 0 && in_word(b->at[at]) && in_word(b->at[at - 1]))
    at--;
  int64_t n = token_length(b->at + at, b->at + b->n);
  bool number = b->at[at] >= '0' && b->at[at] <= '9';
  const char *text = str_format(b->arena, "%lld", (long long)random_number(r));
  Piece other = found.tokens[random_below(r, found.n_tokens)];
  Piece self = {b->at + at, n};
  switch (random_below(r, number ? 8 : 4)) {
  case 0: replace(b, at, n, other); break;
  case 1: replace(b, at, n, (Piece){"", 0}); break;
  case 2: replace(b, at, 0, other); break;
  case 3: replace(b, at, 0, self); break;
  default: replace(b, at, n, (Piece){text, (int64_t)strlen(text)});
  }
}

static void change_line(StrBuf *b, Random *r) {
  int64_t at = random_below(r, (int64_t)b->n);
  while (at > 0 && b->at[at - 1] != '\n')
    at--;
  const char *end = memchr(b->at + at, '\n', b->n - (size_t)at);
  int64_t n = end ? end + 1 - (b->at + at) : (int64_t)b->n - at;
  Piece self = {b->at + at, n}, other = found.lines[random_below(r, found.n_lines)];
  switch (random_below(r, 4)) {
  case 0: replace(b, at, n, (Piece){"", 0}); break;
  case 1: replace(b, at, 0, self); break;
  case 2: replace(b, at, n, other); break;
  default: replace(b, at, 0, other);
  }
}

void fuzz_mutate(const Seeds *seeds, const Seed *seed, Random *r, StrBuf *out) {
  (void)seeds;
  Piece part = choose_part(seed, r, out);
  strbuf_add_n(out, part.at, (size_t)part.n);
  for (int64_t i = 1 + random_below(r, 4); i > 0 && out->n > 0; i--) {
    char byte = (char)random_below(r, 256);
    switch (random_below(r, 12)) {
    case 0: change_line(out, r); break;
    case 1: replace(out, random_below(r, (int64_t)out->n), 1, (Piece){&byte, 1}); break;
    default: change_token(out, r);
    }
  }
}

// -- Checks ----------------------------------------------------------------------------------

static bool small(const Graph *g) {
  if (g->n_values > MAX_VALUES) return false;
  for (int i = 0; i < g->n_params; i++)
    if (type_count(g->params[i]->type) > MAX_ELEMENTS) return false;
  for_each_op(op, g) {
    if (op->callee || op_info[op->kind].traits & COMM) return false;
    for (int i = 0; i < op->n_out; i++)
      if (type_count(op->out[i]->type) > MAX_ELEMENTS) return false;
    if (op_flops(op) > max_flops) return false;
  }
  return true;
}

// Returns arbitrary contents; integers are small, as they may be indices.
static Tensor contents(const Value *v, Arena *a) {
  Tensor t = tensor_new(a, v->type);
  for (int64_t i = 0; i < type_count(v->type); i++) {
    if (dtype_class[v->type->dtype] == 'F')
      tensor_set_f(&t, i, (double)(i % 7) / 4 - 0.7);
    else
      tensor_set_i(&t, i, i % 3);
  }
  return t;
}

// Returns the graph's results, or NULL if an op refuses its operands.  `tame`: all intermediate
// values are finite and small, so that the order of a sum cannot decide the result.
static Tensor *compute(const Graph *g, bool *tame, Arena *a, Diag *d) {
  Tensor *values = arena_array(a, Tensor, g->n_values);
  *tame = true;
  for (int i = 0; i < g->n_params; i++)
    values[g->params[i]->id] = contents(g->params[i], a);
  for_each_op(op, g) {
    Tensor *in = arena_array(a, Tensor, op->n_in), *out = arena_array(a, Tensor, op->n_out);
    for (int i = 0; i < op->n_in; i++)
      in[i] = values[op->in[i].value->id];
    if (!op_evaluate(op, in, out, NULL, a, d)) return NULL;
    for (int i = 0; i < op->n_out; i++) {
      values[op->out[i]->id] = out[i];
      for (int64_t k = 0; *tame && k < type_count(out[i].type); k++)
        *tame = fabs(tensor_f(&out[i], k)) < 1e4;
    }
  }
  Tensor *results = arena_array(a, Tensor, g->n_results + 1);
  for (int i = 0; i < g->n_results; i++)
    results[i] = values[g->results[i]->use.value->id];
  return results;
}

// Whether two results are equal up to rounding.
static bool same(const Tensor *t, const Tensor *u) {
  double largest = 0, apart = 0;
  if (t->type != u->type && type_count(t->type) != type_count(u->type)) return false;
  for (int64_t i = 0; i < type_count(t->type); i++) {
    double x = tensor_f(t, i), y = tensor_f(u, i);
    largest = fmax(largest, fabs(x));
    if (!(fabs(x - y) <= apart)) apart = fabs(x - y);
  }
  return apart <= 1e-3 * fmax(largest, 1);
}

// Checks that optimizing passes preserve the results of every graph.
static void check_meaning(const Module *m, Diag *d) {
  Module *after = module_clone(m);
  PipelineOptions o = {.bisect_limit = -1, .out = stderr};
  bool ok = pipeline_run(after, "simplify,raise,simplify,channels_last,simplify", &o, d);
  const Graph *h = ok ? after->graphs : NULL;
  for (const Graph *g = m->graphs; g && h; g = g->next, h = h->next) {
    Arena *a = arena_new();
    bool tame = false, ignored;
    bool alike = small(g) && small(h) && g->n_params == h->n_params && g->n_results == h->n_results;
    Tensor *x = alike ? compute(g, &tame, a, d) : NULL;
    Tensor *y = x ? compute(h, &ignored, a, d) : NULL;
    if (x && !y) fuzz_fail("optimizing makes an op refuse its operands in", g->name);
    for (int i = 0; x && y && tame && i < g->n_results; i++)
      if (!same(&x[i], &y[i])) fuzz_fail("optimizing changes a result of", g->name);
    arena_free(a);
  }
  module_free(after);
}

// Appends the gradient of every op to the graph, for an adjoint of its first result.
static void differentiate(Graph *g, Diag *d) {
  Op *last = g->last;
  Arena *a = arena_new();
  for (Op *op = g->first; op; op = op == last ? NULL : op->next) {
    Value **dout = arena_array(a, Value *, op->n_out + 1),
          **din = arena_array(a, Value *, op->n_in + 1);
    if (!op->n_out || dtype_class[op->out[0]->type->dtype] != 'F') continue;
    dout[0] = graph_param(g, NULL, op->out[0]->type, ROLE_none, NULL);
    Builder b = {.g = g, .origin = op_origin(op), .d = d};
    if (!op_info[op->kind].grad(&b, op, dout, din)) continue;
    for (int i = 0; i < op->n_in; i++)
      if (din[i] && din[i]->type != op->in[i].value->type)
        fuzz_fail("a gradient is not of its operand's type", NULL);
  }
  arena_free(a);
}

static void check_text(const Module *m, Diag *d) {
  Arena *a = arena_new();
  const char *text = module_text(m, a);
  Module *again = module_parse("again.nn", text, strlen(text), d);
  if (!again) fuzz_fail("what was printed does not parse", NULL);
  const char *text2 = module_text(again, a);
  if (strcmp(text, text2)) fuzz_fail("parse(print(m)) is not m", NULL);
  module_free(again);
  arena_free(a);
}

bool fuzz_one(const char *at, int64_t n) {
  Diag *d = diag_new(stderr);
  diag_quiet(d, true);
  Module *m = module_parse("fuzz.nn", at, (size_t)n, d);
  bool accepted = m && module_verify(m, d);
  if (m) check_text(m, d);
  if (accepted && m->phase == PHASE_typed) {
    for_each_graph(g, m) {
      Arena *a = arena_new();
      bool ignored;
      if (small(g)) compute(g, &ignored, a, d);
      arena_free(a);
    }
    check_meaning(m, d);
    fuzz_passes(m, d);
    for_each_graph(g, m) {
      if (small(g)) differentiate(g, d);
    }
  }
  if (m) module_free(m);
  diag_free(d);
  return accepted;
}
