// The optimizers' references compared with torch.optim, over five steps in double.
//
//     optim optim_reference.txt          written and explained by torch_optim.py

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/build.h"
#include "ir/op.h"

enum { N = 4, MAX_STATES = 2 };

static const double tolerance = 1e-13;

typedef struct Case {
  char name[32], row[32];
  double lr, gscale;
  Attr attrs[8];
  char keys[8][32];
  int n_attrs;
  int64_t step;
  double w[N], state[MAX_STATES][N];
} Case;

static int cases, compared, failures;

static void read_case(Case *c, char *line) {
  *c = (Case){0};
  char *word = strtok(line, " \n"); // "case"
  snprintf(c->name, sizeof c->name, "%s", strtok(NULL, " \n"));
  snprintf(c->row, sizeof c->row, "%s", strtok(NULL, " \n"));
  while ((word = strtok(NULL, " \n"))) {
    char *equals = strchr(word, '=');
    *equals = 0;
    double x = atof(equals + 1);
    if (str_equal(word, "lr"))
      c->lr = x;
    else if (str_equal(word, "gscale"))
      c->gscale = x;
    else {
      bool flag = strstr("nesterov decoupled onnx", word) != NULL;
      snprintf(c->keys[c->n_attrs], sizeof c->keys[0], "%s", word);
      c->attrs[c->n_attrs] = flag ? a_b(c->keys[c->n_attrs], x != 0) : a_f(c->keys[c->n_attrs], x);
      c->n_attrs++;
    }
  }
}

static void read_numbers(const char *line, double *out) {
  const char *at = strchr(line, ' ');
  for (int i = 0; i < N; i++) {
    char *end;
    out[i] = strtod(at, &end);
    at = end;
  }
}

// Evaluates one op on `in`, with the results in `out`.
static void run(Case *c, const char *row, const Tensor *in, int n_in, Attr *attrs, int n_attrs,
                Tensor *out, Arena *a) {
  Module *m = module_new();
  Diag *d = diag_new(stderr);
  Graph *g = graph_new(m, "g", false);
  Value *values[8];
  for (int i = 0; i < n_in; i++)
    values[i] =
        graph_param(g, NULL, type_new(m, in[i].type->dtype, in[i].type->ndim, in[i].type->dim),
                    ROLE_none, NULL);
  OpKind kind;
  Op *op = op_kind_parse(row, &kind)
               ? op_new(g, NULL, kind, values, n_in, attrs, n_attrs, (Origin){0}, d)
               : NULL;
  if (!op || !op_evaluate(op, in, out, NULL, a, d)) {
    fprintf(stderr, "%s: cannot run %s\n", c->name, row);
    exit(EXIT_FAILURE);
  }
  for (int i = 0; i < op->n_out; i++) // the module's types are freed with it
    out[i].type = arena_copy(a, out[i].type, sizeof(Type));
  module_free(m);
  diag_free(d);
}

static Tensor vector(double *x) {
  static const Type type = {.dtype = DT_f64, .ndim = 1, .dim = {N}};
  return (Tensor){&type, x};
}

static Tensor scalar(void *x, DType dtype) {
  static const Type f64 = {.dtype = DT_f64}, i64 = {.dtype = DT_i64};
  return (Tensor){dtype == DT_f64 ? &f64 : &i64, x};
}

// lamb is two ops, with the norms computed between them.
static void apply_lamb(Case *c, Tensor *out, Arena *a) {
  Tensor w = vector(c->w), w2, r2;
  run(c, "sum_squares", &w, 1, NULL, 0, &w2, a);
  run(c, "sum_squares", &out[0], 1, NULL, 0, &r2, a);
  Tensor in[] = {w, out[0], w2, r2, scalar(&c->lr, DT_f64)};
  run(c, "lamb_apply", in, 5, NULL, 0, &out[0], a);
}

// Operands: weights, gradient, states, learning rate (not of lamb), factor, steps (not of sgd).
static void do_step(Case *c, double *g) {
  Arena *a = arena_new();
  bool lamb = str_equal(c->row, "lamb"), sgd = str_equal(c->row, "sgd");
  int n_states = sgd ? 0 : lamb || str_equal(c->row, "adam") ? 2 : 1, n = 0;
  Tensor in[8], out[3];
  in[n++] = vector(c->w);
  in[n++] = vector(g);
  for (int i = 0; i < n_states; i++)
    in[n++] = vector(c->state[i]);
  if (!lamb) in[n++] = scalar(&c->lr, DT_f64);
  in[n++] = scalar(&c->gscale, DT_f64);
  if (!sgd) in[n++] = scalar(&c->step, DT_i64);
  run(c, c->row, in, n, c->attrs, c->n_attrs, out, a);
  if (lamb) apply_lamb(c, out, a);
  memcpy(c->w, out[0].data, sizeof c->w);
  for (int i = 0; i < n_states; i++)
    memcpy(c->state[i], out[1 + i].data, sizeof c->state[i]);
  c->step++;
  arena_free(a);
}

static void compare(const Case *c, const double *want) {
  for (int i = 0; i < N; i++) {
    compared++;
    if (fabs(c->w[i] - want[i]) <= tolerance * (1 + fabs(want[i]))) continue;
    fprintf(stderr, "%s: step %lld: weight %d is %.17g, torch has %.17g\n", c->name,
            (long long)c->step, i, c->w[i], want[i]);
    failures++;
  }
}

int main(int argc, char **argv) {
  FILE *f = argc == 2 ? fopen(argv[1], "r") : NULL;
  if (!f) {
    fprintf(stderr, "usage: optim optim_reference.txt\n");
    return 2;
  }
  Case c = {0};
  char line[1024];
  double numbers[N];
  while (fgets(line, sizeof line, f)) {
    if (str_starts(line, "case ")) {
      read_case(&c, line);
      cases++;
    } else if (str_starts(line, "w0 ")) {
      read_numbers(line, c.w);
    } else if (str_starts(line, "g ")) {
      read_numbers(line, numbers);
      do_step(&c, numbers);
    } else if (str_starts(line, "w ")) {
      read_numbers(line, numbers);
      compare(&c, numbers);
    }
  }
  fclose(f);
  printf("optim: %d cases, %d weights, %d failures\n", cases, compared, failures);
  return failures || cases < 12 || compared != cases * 5 * N ? EXIT_FAILURE : EXIT_SUCCESS;
}
