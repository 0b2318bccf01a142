// Einsum: a sum of products over named dimensions, as transposes and matrix products.
//
//     "bhqd,bhkd->bhqk"      batch b h, rows q, columns k, summed d:
//                            matmul (b h) q d, (b h) d k
//
// Operands are taken from left to right, two at a time.  A name without further uses is summed:
// within one operand by reduce_sum, across the two as the inner dimension of their product.  A name
// that occurs twice in one operand is its diagonal. Dimensions of "..." get names of their own,
// counted from the last.

#include <string.h>

#include "frontend/onnx_node.h"

enum { N_NAMES = 128 + MAX_NDIM, ELLIPSIS = 128 };

typedef struct Factor {
  Value *v;
  int n;
  int name[MAX_NDIM];
} Factor;

typedef struct Sum {
  Node *node;
  int64_t size[N_NAMES]; // 0: not seen
  int times[N_NAMES];    // number of operands with it
} Sum;

static int find(const Factor *t, int name) {
  for (int i = 0; i < t->n; i++)
    if (t->name[i] == name) return i;
  return -1;
}

static bool bad_equation(Node *n) {
  return node_fail(n, "cannot read its equation '%s'", node_str(n, "equation", ""));
}

// Reads names up to a comma, an arrow or the end.  `ndim` is the operand's, or -1 for the result;
// in the result "..." has `wide` dimensions.
static bool read_term(Sum *s, const char **at, int ndim, int wide, Factor *t) {
  const char *p = *at;
  int letters = 0, dots = 0;
  // First pass: counts the letters, which gives the number of dimensions of "...".
  for (; *p && *p != ',' && *p != '-'; p++) {
    if (*p == ' ') continue;
    if (*p == '.') {
      if (dots++ || p[1] != '.' || p[2] != '.') return bad_equation(s->node);
      p += 2;
    } else if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')) {
      letters++;
    } else {
      return bad_equation(s->node);
    }
  }
  int in_dots = !dots ? 0 : ndim >= 0 ? ndim - letters : wide;
  if (in_dots < 0 || letters + in_dots > MAX_NDIM || (ndim >= 0 && letters + in_dots != ndim))
    return node_fail(s->node, "equation '%s' does not fit its operands",
                     node_str(s->node, "equation", ""));
  t->n = 0;
  // Second pass: the names, in order.
  for (p = *at; *p && *p != ',' && *p != '-'; p++) {
    if (*p == '.') {
      for (int i = 0; i < in_dots; i++)
        t->name[t->n++] = ELLIPSIS + in_dots - 1 - i;
      p += 2;
    } else if (*p != ' ') {
      if (find(t, *p) >= 0 && ndim < 0) return bad_equation(s->node);
      t->name[t->n++] = *p;
    }
  }
  *at = p;
  return true;
}

static void drop_dim(Node *n, Factor *t, int i) {
  int64_t dim[MAX_NDIM];
  int ndim = 0;
  for (int k = 0; k < t->n; k++)
    if (k != i) {
      dim[ndim] = t->v->type->dim[k];
      t->name[ndim++] = t->name[k];
    }
  // A dimension of length 1 is dropped by a reshape.
  t->n = ndim;
  t->v = build_reshape(n->b, t->v, ndim, dim);
}

// Takes the diagonals of dimensions with one name: "ii->i" takes every (n+1)-th element of n rows
// of n.
static void take_diagonals(Node *n, Factor *t) {
  for (int j = t->n - 1; j > 0; j--) {
    int i = find(t, t->name[j]);
    if (i == j || !t->v) continue;
    int64_t perm[MAX_NDIM], dim[MAX_NDIM], start[MAX_NDIM] = {0}, step[MAX_NDIM];
    int64_t size = t->v->type->dim[i];
    int ndim = 0, name = t->name[i];
    // i and j become the last two dimensions.
    for (int k = 0; k < t->n; k++) {
      if (k == i || k == j) continue;
      perm[ndim] = k;
      dim[ndim] = t->v->type->dim[k];
      step[ndim] = 1;
      t->name[ndim++] = t->name[k];
    }
    perm[ndim] = i;
    perm[ndim + 1] = j;
    t->v = build_transpose(n->b, t->v, perm);
    // They are merged, and every (size + 1)-th element is taken.
    dim[ndim] = size * size;
    step[ndim] = size + 1;
    t->v = build_reshape(n->b, t->v, ndim + 1, dim);
    dim[ndim] = size;
    t->name[ndim] = name;
    t->n = ndim + 1;
    t->v = build_op(n->b, OP_slice, IN(t->v),
                    ATTRS(a_list("starts", start, t->n), a_list("steps", step, t->n),
                          a_list("shape", dim, t->n)));
    j = t->n; // the order has changed
  }
}

// Sums over names that are in neither `other` nor `needed`.
static void sum_out(Node *n, Factor *t, const Factor *other, const int *needed) {
  int64_t axes[MAX_NDIM];
  int n_axes = 0, kept = 0;
  for (int i = 0; i < t->n; i++)
    // The other names stay, in their order.
    if (!needed[t->name[i]] && (!other || find(other, t->name[i]) < 0))
      axes[n_axes++] = i;
    else
      t->name[kept++] = t->name[i];
  t->n = kept;
  t->v = build_reduce_sum(n->b, t->v, axes, n_axes, false);
}

// Transposes the operand to the named dimensions, in that order.
static void arrange(Node *n, Factor *t, const int *name) {
  int64_t perm[MAX_NDIM];
  for (int i = 0; i < t->n; i++)
    perm[i] = find(t, name[i]);
  memcpy(t->name, name, (size_t)t->n * sizeof *name);
  t->v = build_transpose(n->b, t->v, perm);
}

static bool multiply(Sum *s, Factor *a, Factor *b, const int *needed) {
  Node *n = s->node;
  // Names of one operand alone are summed before the product, which is smaller then.
  sum_out(n, a, b, needed);
  sum_out(n, b, a, needed);
  int batch[MAX_NDIM], inner[MAX_NDIM], rows[MAX_NDIM], columns[MAX_NDIM];
  int n_batch = 0, n_inner = 0, n_rows = 0, n_columns = 0;
  int64_t size_batch = 1, size_inner = 1, size_rows = 1, size_columns = 1;
  // The names of a: only in a, in both and needed later, in both and summed.
  for (int i = 0; i < a->n; i++) {
    int name = a->name[i];
    if (find(b, name) < 0) {
      rows[n_rows++] = name;
      size_rows *= s->size[name];
    } else if (needed[name]) {
      batch[n_batch++] = name;
      size_batch *= s->size[name];
    } else {
      inner[n_inner++] = name;
      size_inner *= s->size[name];
    }
  }
  for (int i = 0; i < b->n; i++)
    // The names of b that a lacks.
    if (find(a, b->name[i]) < 0) {
      columns[n_columns++] = b->name[i];
      size_columns *= s->size[b->name[i]];
    }
  if (n_batch + n_rows + n_columns > MAX_NDIM)
    return node_fail(n, "an intermediate result of more than %d dimensions", MAX_NDIM);
  // a is (batch, rows, inner), b (batch, inner, columns), the result (batch, rows, columns).
  int left[MAX_NDIM] = {0}, right[MAX_NDIM] = {0}, out[MAX_NDIM], nl = 0, nr = 0, no = 0;
  for (int i = 0; i < n_batch; i++)
    left[nl++] = right[nr++] = out[no++] = batch[i];
  for (int i = 0; i < n_rows; i++)
    left[nl++] = out[no++] = rows[i];
  for (int i = 0; i < n_inner; i++)
    left[nl++] = right[nr++] = inner[i];
  for (int i = 0; i < n_columns; i++)
    right[nr++] = out[no++] = columns[i];
  // The operands in this order, and as three dimensions each, unless all but the batch are single.
  arrange(n, a, left);
  arrange(n, b, right);
  Value *va = a->v, *vb = b->v, *y;
  if (n_rows != 1 || n_inner != 1 || n_columns != 1 || n_batch == 0) {
    va = build_reshape(n->b, va, 3, (int64_t[]){size_batch, size_rows, size_inner});
    vb = build_reshape(n->b, vb, 3, (int64_t[]){size_batch, size_inner, size_columns});
  }
  // Without a batch it is a plain matrix product.
  if (n_batch == 0) {
    va = build_reshape(n->b, va, 2, (int64_t[]){size_rows, size_inner});
    vb = build_reshape(n->b, vb, 2, (int64_t[]){size_inner, size_columns});
    y = build_op(n->b, OP_linear, IN(va, vb), ATTRS(a_b("trans", false)));
  } else {
    y = build_op(n->b, OP_matmul, IN(va, vb), ATTRS(a_b("trans_a", false), a_b("trans_b", false)));
  }
  // The result has the names back as dimensions of their own.
  int64_t dim[MAX_NDIM];
  for (int i = 0; i < no; i++)
    dim[i] = s->size[out[i]];
  a->v = build_reshape(n->b, y, no, dim);
  a->n = no;
  memcpy(a->name, out, (size_t)no * sizeof *out);
  return !n->b->failed;
}

// Whether the first name of the result that one of the operands alone has is one of b.
static bool starts_with_second(const Factor *a, const Factor *b, const Factor *out) {
  for (int i = 0; i < out->n; i++) {
    bool in_a = find(a, out->name[i]) >= 0, in_b = find(b, out->name[i]) >= 0;
    if (in_a != in_b) return in_b;
  }
  return false;
}

// Reads the terms of the operands, separated by commas, and the sizes of names.  `wide`: the most
// dimensions of an ellipsis.
static bool read_operands(Sum *s, const char **io_at, Factor *term, int *out_wide) {
  Node *n = s->node;
  const char *at = *io_at;
  int wide = 0;
  for (int i = 0; i < n->n_in; i++) {
    if (!n->in[i]) return node_fail(n, "operand %d is left out", i);
    const Type *type = n->in[i]->type;
    term[i].v = n->in[i];
    while (*at == ' ')
      at++;
    if (!read_term(s, &at, type->ndim, 0, &term[i])) return false;
    if (*at == ',' ? i + 1 == n->n_in : i + 1 < n->n_in) return bad_equation(n);
    at += *at == ',';
    for (int k = 0; k < term[i].n; k++) {
      int name = term[i].name[k];
      int64_t size = type->dim[k];
      s->times[name]++;
      if (name >= ELLIPSIS && name - ELLIPSIS >= wide) wide = name - ELLIPSIS + 1;
      // A length of 1 is broadcast.
      if (s->size[name] > 1 && size > 1 && size != s->size[name])
        return node_fail(n, "a dimension is both %lld and %lld", (long long)s->size[name],
                         (long long)size);
      if (s->size[name] <= 1) s->size[name] = size;
    }
  }
  *io_at = at;
  *out_wide = wide;
  return true;
}

// Reads the term of the result.
static bool read_result(Sum *s, const char *at, int wide, Factor *out) {
  Node *n = s->node;
  if (*at == '-') {
    if (at[1] != '>') return bad_equation(n);
    at += 2;
    if (!read_term(s, &at, -1, wide, out) || *at) return *at ? bad_equation(n) : false;
  } else {
    // Without an arrow the result has "..." and then, sorted, the names that occur once.
    out->n = 0;
    for (int i = 0; i < wide; i++)
      out->name[out->n++] = ELLIPSIS + wide - 1 - i;
    for (int c = 'A'; c <= 'z' && out->n < MAX_NDIM; c++)
      if (s->times[c] == 1) out->name[out->n++] = c;
  }
  return true;
}

// Multiplies the terms from the left into the first one.  The rest is summed out.
static bool multiply_terms(Sum *s, Factor *term, const Factor *out) {
  Node *n = s->node;
  // How often each name is needed later: in the result, and in operands not yet multiplied.
  int needed[N_NAMES] = {0};
  for (int i = 0; i < out->n; i++) {
    if (!s->times[out->name[i]]) return bad_equation(n);
    needed[out->name[i]]++;
  }
  for (int i = 1; i < n->n_in; i++)
    for (int k = 0; k < term[i].n; k++)
      needed[term[i].name[k]]++;
  for (int i = 1; i < n->n_in; i++) {
    for (int k = 0; k < term[i].n; k++)
      needed[term[i].name[k]]--;
    // The last product gives the dimensions in the order of the result, if it can.
    if (i == n->n_in - 1 && starts_with_second(&term[0], &term[i], out)) {
      Factor first = term[0];
      term[0] = term[i];
      term[i] = first;
    }
    if (!multiply(s, &term[0], &term[i], needed)) return false;
  }
  // With one operand there was no product.
  sum_out(n, &term[0], NULL, needed);
  return true;
}

bool import_einsum(Node *n) {
  Sum s = {.node = n};
  Factor *term = arena_array(n->a, Factor, n->n_in), out = {0};
  const char *at = node_str(n, "equation", "");
  int wide = 0;
  if (!read_operands(&s, &at, term, &wide) || !read_result(&s, at, wide, &out)) return false;
  // Broadcast dimensions of 1.
  for (int i = 0; i < n->n_in; i++)
    for (int k = term[i].n - 1; k >= 0; k--)
      if (term[i].v && term[i].v->type->dim[k] == 1 && s.size[term[i].name[k]] > 1)
        drop_dim(n, &term[i], k);
  for (int i = 0; i < n->n_in; i++)
    take_diagonals(n, &term[i]);
  if (!multiply_terms(&s, term, &out)) return false;
  if (term[0].n != out.n) return bad_equation(n);
  arrange(n, &term[0], out.name);
  n->out[0] = term[0].v;
  return true;
}
