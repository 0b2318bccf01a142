// See random_models.h.

#include "random_models.h"

#include "base/str.h"

int random_below(unsigned *state, int n) {
  *state = *state * 1664525u + 1013904223u;
  return (int)((*state >> 8) % (unsigned)n);
}

enum { WIDTHS = 3 };

typedef struct Writer {
  Arena *a;
  unsigned state;
  StrBuf params, ops;
  int values, weights, left; // products that are left
  int rows, length;          // length 0: values have no dimension between rows and width
  int width[WIDTHS];
} Writer;

typedef struct Node {
  const char *name;
  int width;
} Node;

static Node value_new(Writer *w, int width) {
  return (Node){str_format(w->a, "v%d", w->values++), width};
}

static int any_width(Writer *w) {
  return w->width[random_below(&w->state, WIDTHS)];
}

static Node product(Writer *w, Node x, int width) {
  Node y = value_new(w, width);
  int weight = w->weights++;
  strbuf_addf(&w->params, ",\n  %%w%d: f32[%d,%d] weight \"w%d\" train = normal(0,1)", weight,
              x.width, width, weight);
  strbuf_addf(&w->ops, "  %%%s = linear %%%s, %%w%d\n", y.name, x.name, weight);
  w->left--;
  return y;
}

static Node of_one(Writer *w, const char *op, Node x) {
  Node y = value_new(w, x.width);
  strbuf_addf(&w->ops, "  %%%s = %s %%%s\n", y.name, op, x.name);
  return y;
}

static Node of_two(Writer *w, const char *op, Node x, Node z) {
  Node y = value_new(w, x.width);
  strbuf_addf(&w->ops, "  %%%s = %s %%%s, %%%s\n", y.name, op, x.name, z.name);
  return y;
}

static Node activation(Writer *w, Node x) {
  static const char *const op[] = {"gelu", "relu", "tanh", "sigmoid"};
  return of_one(w, op[random_below(&w->state, sizeof op / sizeof *op)], x);
}

static Node norm(Writer *w, Node x) {
  Node y = value_new(w, x.width);
  int weight = w->weights++;
  strbuf_addf(&w->params,
              ",\n  %%g%d: f32[%d] weight \"g%d\" train = normal(0,1)"
              ",\n  %%b%d: f32[%d] weight \"b%d\" train = normal(0,1)",
              weight, x.width, weight, weight, x.width, weight);
  strbuf_addf(&w->ops, "  %%%s, %%m%d, %%r%d = layer_norm %%%s, %%g%d, %%b%d eps=1e-5\n", y.name,
              weight, weight, x.name, weight, weight);
  return y;
}

// Two products with an activation between them, and the sum with their input.
static Node residual(Writer *w, Node x) {
  Node h = random_below(&w->state, 2) ? norm(w, x) : x;
  h = activation(w, product(w, h, any_width(w)));
  return of_two(w, "add", product(w, h, x.width), x);
}

// Branches that need nothing of each other.
static Node branches(Writer *w, Node x) {
  int width = any_width(w);
  Node left = product(w, x, width), right = product(w, x, width);
  if (random_below(&w->state, 2)) left = activation(w, left);
  if (w->left > 2 && random_below(&w->state, 2)) right = product(w, activation(w, right), width);
  return of_two(w, random_below(&w->state, 2) ? "mul" : "add", left, right);
}

// One head of attention, op by op.
static Node attention(Writer *w, Node x) {
  int width = any_width(w);
  Node q = product(w, x, width), k = product(w, x, width), v = product(w, x, width);
  Node scores = value_new(w, w->length), y = value_new(w, width);
  strbuf_addf(&w->ops, "  %%%s = matmul %%%s, %%%s trans_b=true\n", scores.name, q.name, k.name);
  Node p = value_new(w, w->length);
  strbuf_addf(&w->ops, "  %%%s = softmax %%%s axis=2\n", p.name, scores.name);
  strbuf_addf(&w->ops, "  %%%s = matmul %%%s, %%%s\n", y.name, p.name, v.name);
  y = product(w, y, x.width);
  return random_below(&w->state, 2) ? of_two(w, "add", y, x) : y;
}

static Node part(Writer *w, Node x) {
  switch (random_below(&w->state, 6)) {
  case 0:
    if (w->left >= 4 && w->length) return attention(w, x);
    break;
  case 1:
    if (w->left >= 2) return residual(w, x);
    break;
  case 2:
    if (w->left >= 2) return branches(w, x);
    break;
  case 3: return product(w, norm(w, x), any_width(w));
  }
  Node y = product(w, x, any_width(w));
  return random_below(&w->state, 3) ? activation(w, y) : y;
}

const char *random_model(unsigned seed, const RandomModel *o, Arena *a) {
  static const int width[] = {16, 64, 128, 512, 1024, 2048}, length[] = {0, 0, 2, 16, 64};
  enum { N_WIDTHS = sizeof width / sizeof *width, N_LENGTHS = sizeof length / sizeof *length };
  Writer w = {.a = a, .state = seed * 2654435761u + 1, .rows = o->rows};
  w.params.arena = w.ops.arena = a;
  w.left = 3 + random_below(&w.state, o->products - 2);
  w.length = length[random_below(&w.state, N_LENGTHS)];
  for (int i = 0; i < WIDTHS; i++)
    w.width[i] = width[random_below(&w.state, N_WIDTHS)];
  Node x = {"x", any_width(&w)};
  const char *middle = w.length ? str_format(a, "%d,", w.length) : "";
  strbuf_addf(&w.params, "%%x: f32[%d,%s%d] input \"x\"", w.rows, middle, x.width);
  while (w.left > 0)
    x = part(&w, x);
  Node q = of_two(&w, "mul", x, x);
  return str_format(a,
                    "module \"random\" phase=typed\ngraph @main entry (%s) {\n%s"
                    "  %%l = reduce_sum %%%s axes=[%s]\n  return output \"loss\" %%l\n}\n",
                    w.params.at, w.ops.at, q.name, w.length ? "0,1,2" : "0,1");
}
