// Operators that look elements up among known keys: encoders of labels and categories, and counts
// of n-grams.
//
//     LabelEncoder     y = values[k] where keys[k] = x, else the default
//     TfIdfVectorizer  y[g] = how often n-gram g occurs in x
//
// Keys are sorted on import, and searched in as many steps as their number has bits: a step is a
// lookup and a comparison for all elements at once.  Strings are numbers here (onnx_strings.h).

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx_walk.h"

// -- Search ------------------------------------------------------------------------------------

// Keys, or the values of these keys: numbers, or numbers of strings.
typedef struct List {
  Tensor t; // one dimension
  bool given, strings;
} List;

static int64_t list_count(const List *l) {
  return l->given ? type_count(l->t.type) : 0;
}

// A key and its position in the model's list.
typedef struct Key {
  double f;
  int64_t i, at;
} Key;

static int by_float(const void *x, const void *y) {
  const Key *a = x, *b = y;
  return a->f < b->f ? -1 : a->f > b->f ? 1 : (a->at > b->at) - (a->at < b->at);
}

static int by_integer(const void *x, const void *y) {
  const Key *a = x, *b = y;
  return a->i < b->i ? -1 : a->i > b->i ? 1 : (a->at > b->at) - (a->at < b->at);
}

// Sorts the keys but NaN, and sets its position or -1; of equal keys the last one counts, as in
// ONNX's reference implementation.
static int64_t sort_keys(const Tensor *keys, Key *out, int64_t *nan_at) {
  bool floating = dtype_class[keys->type->dtype] == 'F';
  int64_t count = type_count(keys->type), kept = 0, distinct = 0;
  *nan_at = -1;
  for (int64_t i = 0; i < count; i++) {
    Key k = {.at = i};
    if (floating) k.f = tensor_f(keys, i);
    if (!floating) k.i = tensor_i(keys, i);
    if (floating && isnan(k.f))
      *nan_at = i;
    else
      out[kept++] = k;
  }
  if (kept > 0) qsort(out, (size_t)kept, sizeof *out, floating ? by_float : by_integer);
  for (int64_t i = 0; i < kept; i++) {
    bool last = i + 1 == kept || (floating ? out[i].f < out[i + 1].f : out[i].i < out[i + 1].i);
    if (last) out[distinct++] = out[i];
  }
  return distinct;
}

static Value *look_up(Node *n, Value *table, Value *at) {
  return build_op(n->b, OP_gather, IN(table, at), ATTRS(a_i("axis", 0)));
}

// Sets the position of each element among the keys as the model lists them, and whether it is one
// of them.  x has the type of the keys.
static bool search(Node *n, Value *x, const Tensor *keys, Value **at, Value **found) {
  Key *sorted = arena_array(n->a, Key, type_count(keys->type) + 1);
  int64_t nan_at, count = sort_keys(keys, sorted, &nan_at), size = 1;
  if (count == 0 && nan_at < 0) return node_fail(n, "has no keys");
  while (size < count)
    size *= 2;
  // To a power of two, with the last key again.
  Tensor table = tensor_new(n->a, type_new(n->im->m, keys->type->dtype, 1, &size));
  int64_t *place = arena_array(n->a, int64_t, size);
  for (int64_t i = 0; i < size && count > 0; i++) {
    const Key *k = &sorted[i < count ? i : count - 1];
    if (dtype_class[keys->type->dtype] == 'F')
      tensor_set_f(&table, i, k->f);
    else
      tensor_set_i(&table, i, k->i);
    place[i] = k->at;
  }
  Value *all = build_constant(n->b, table.type, table.data), *index = NULL;
  *found = NULL;
  if (count > 0 && x) {
    // The last key that is not above x.
    index = build_fill(n->b, DT_i64, x->type->ndim, x->type->dim, 0);
    for (int64_t step = size / 2; step > 0 && index; step /= 2) {
      Value *next = build_op(n->b, OP_offset, IN(index), ATTRS(a_f("by", (double)step)));
      Value *above = node_binary(n, OP_less, x, look_up(n, all, next));
      index = build_where(n->b, above, index, next);
    }
    *found = node_binary(n, OP_equal, x, look_up(n, all, index));
    index = look_up(n, node_ints_value(n, place, (int)size), index);
  }
  if (nan_at >= 0 && x) {
    Value *is_nan = node_unary(n, OP_is_nan, x);
    Value *there = build_fill(n->b, DT_i64, x->type->ndim, x->type->dim, (double)nan_at);
    index = index ? build_where(n->b, is_nan, there, index) : there;
    *found = *found ? node_binary(n, OP_or, *found, is_nan) : is_nan;
  }
  *at = index;
  return *at && *found;
}

// -- LabelEncoder, CategoryMapper --------------------------------------------------------------

// Reads the first of the attributes PREFIX_strings, _int64s, _floats and _tensor that is there.
static bool read_keys(Node *n, const char *prefix, List *out) {
  Ints ints;
  Floats floats;
  *out = (List){0};
  const char *names[] = {
      str_format(n->a, "%s_strings", prefix), str_format(n->a, "%s_int64s", prefix),
      str_format(n->a, "%s_floats", prefix), str_format(n->a, "%s_tensor", prefix)};
  bool strings = node_string_list(n, names[0], &ints);
  if (n->b->failed) return false;
  if (strings || (node_list(n, names[1], &ints) && ints.n)) {
    int64_t count = ints.n;
    *out = (List){tensor_new(n->a, type_new(n->im->m, DT_i64, 1, &count)), true, strings};
    memcpy(out->t.data, ints.at, (size_t)count * sizeof *ints.at);
    return true;
  }
  if (!node_floats(n, names[2], &floats)) return false;
  if (floats.n) {
    int64_t count = floats.n;
    *out = (List){tensor_new(n->a, type_new(n->im->m, DT_f32, 1, &count)), true, false};
    for (int i = 0; i < floats.n; i++)
      tensor_set_f(&out->t, i, floats.at[i]);
    return true;
  }
  const Onnx__AttributeProto *a = node_attr(n, names[3]);
  if (!a || !a->t) return true;
  if (!node_tensor(n, a->t, &out->t)) return false;
  out->given = true;
  out->strings = a->t->data_type == ONNX_STRING;
  return true;
}

// The value of elements that are no key, of the type of the values; NULL after a report.
static Value *otherwise(Node *n, const List *values, const char *prefix) {
  const char *of_tensor = str_format(n->a, "%s_tensor", prefix);
  const Onnx__AttributeProto *a = node_attr(n, of_tensor);
  // All of them are read: those of other types have no effect.
  const char *text = node_str(n, str_format(n->a, "%s_string", prefix), "_Unused");
  int64_t integer = node_int(n, str_format(n->a, "%s_int64", prefix), -1);
  double real = node_float(n, str_format(n->a, "%s_float", prefix), -0.0);
  DType dtype = values->t.type->dtype;
  if (a && a->t) {
    Tensor t;
    if (!node_tensor(n, a->t, &t)) return NULL;
    if (type_count(t.type) != 1 || t.type->dtype != dtype ||
        (a->t->data_type == ONNX_STRING) != values->strings) {
      node_fail(n, "%s is %s, for values of %s", of_tensor, type_text(n->a, t.type),
                type_text(n->a, values->t.type));
      return NULL;
    }
    return build_constant(n->b, type_scalar(n->im->m, dtype), t.data);
  }
  if (values->strings) return node_strings_value(n, 0, NULL, &text);
  return node_scalar(n, dtype, dtype_class[dtype] == 'F' ? real : (double)integer);
}

static bool encode(Node *n, Value *x, const List *keys, const List *values) {
  if (list_count(keys) == 0 || list_count(keys) != list_count(values))
    return node_fail(n, "has %lld keys and %lld values", (long long)list_count(keys),
                     (long long)list_count(values));
  if (keys->strings != node_is_string(n, 0))
    return node_fail(n, "its keys are %s, and its operand is not",
                     keys->strings ? "strings" : "numbers");
  DType of = keys->t.type->dtype;
  if ((dtype_class[x->type->dtype] == 'F') != (dtype_class[of] == 'F'))
    return node_fail(n, "its keys are %s, and its operand is %s", dtype_name[of],
                     dtype_name[x->type->dtype]);
  // Keys of f64 are not rounded: x becomes as wide as they are.
  if (of != x->type->dtype) x = build_cast(n->b, x, of);
  Value *at = NULL, *found = NULL, *missing = otherwise(n, values, "default");
  if (!missing || !search(n, x, &keys->t, &at, &found)) return false;
  int64_t count = list_count(values);
  Value *table =
      build_constant(n->b, type_new(n->im->m, values->t.type->dtype, 1, &count), values->t.data);
  Value *in[] = {found, look_up(n, table, at), missing};
  if (!node_broadcast(n, in, 3)) return false;
  n->out[0] = build_op(n->b, OP_where, in, 3, NO_ATTRS);
  n->out_narrow[0] = values->strings ? ONNX_STRING : 0;
  return true;
}

// Opset 1 maps strings to their positions in a list, and positions to strings.
static bool encode_positions(Node *n, const Ints *classes) {
  int64_t count = classes->n;
  const Type *type = type_new(n->im->m, DT_i64, 1, &count);
  List strings = {tensor_new(n->a, type), true, true},
       positions = {tensor_new(n->a, type), true, false};
  for (int i = 0; i < classes->n; i++) {
    tensor_set_i(&strings.t, i, classes->at[i]);
    tensor_set_i(&positions.t, i, i);
  }
  bool text = node_is_string(n, 0);
  return encode(n, n->in[0], text ? &strings : &positions, text ? &positions : &strings);
}

bool import_label_encoder(Node *n) {
  List keys, values;
  Ints classes;
  if (node_string_list(n, "classes_strings", &classes)) return encode_positions(n, &classes);
  if (n->b->failed || !read_keys(n, "keys", &keys) || !read_keys(n, "values", &values))
    return false;
  return encode(n, n->in[0], &keys, &values);
}

bool import_category_mapper(Node *n) {
  List strings, integers;
  if (!read_keys(n, "cats", &strings)) return false;
  Ints ints;
  node_list(n, "cats_int64s", &ints);
  int64_t count = ints.n;
  integers = (List){tensor_new(n->a, type_new(n->im->m, DT_i64, 1, &count)), true, false};
  for (int i = 0; i < ints.n; i++)
    tensor_set_i(&integers.t, i, ints.at[i]);
  if (!strings.strings) return node_fail(n, "has no cats_strings");
  bool text = node_is_string(n, 0);
  return encode(n, n->in[0], text ? &strings : &integers, text ? &integers : &strings);
}

// -- OneHotEncoder -----------------------------------------------------------------------------

// A row of the identity matrix for each element, zeros for one that is no category; without `zeros`
// such an element ends the run, as an index out of range.
bool import_one_hot_encoder(Node *n) {
  List cats;
  Value *x = n->in[0], *at = NULL, *found = NULL;
  if (!read_keys(n, "cats", &cats)) return false;
  int64_t count = list_count(&cats);
  if (count == 0) return node_fail(n, "has no categories");
  if (cats.strings != node_is_string(n, 0))
    return node_fail(n, "its categories are %s, and its operand is not",
                     cats.strings ? "strings" : "numbers");
  bool zeros = node_int(n, "zeros", 1) != 0;
  int64_t dim[] = {count + zeros, count};
  if (!node_small(n, dim[0]) || !node_small(n, dim[0] * dim[1])) return false;
  if (!search(n, build_cast(n->b, x, DT_i64), &cats.t, &at, &found)) return false;
  at = build_where(n->b, found, at, node_like(n, at, (double)count));
  double *rows = arena_array(n->a, double, dim[0] * dim[1]);
  for (int64_t i = 0; i < count; i++)
    rows[i * count + i] = 1;
  n->out[0] = look_up(n, node_numbers(n, DT_f32, 2, dim, rows), at);
  n->out_narrow[0] = 0;
  return true;
}

// -- TfIdfVectorizer ---------------------------------------------------------------------------

// How often each of `count` n-grams of `size` elements, one after the other in `grams`, occurs in
// the rows of x (rows, length), with the elements of an occurrence `step` apart.
static Value *occurrences(Node *n, Value *x, const int64_t *grams, int64_t count, int64_t size,
                          int64_t step) {
  int64_t rows = x->type->dim[0], windows = x->type->dim[1] - (size - 1) * step;
  if (windows < 1) return build_fill(n->b, DT_f32, 2, (int64_t[]){rows, count}, 0);
  Value *all = NULL;
  for (int64_t k = 0; k < size; k++) {
    // Element k of every window, compared with that of every n-gram.
    int64_t *at = arena_array(n->a, int64_t, count);
    for (int64_t i = 0; i < count; i++)
      at[i] = grams[i * size + k];
    Value *part = build_slice(n->b, x, 1, k * step, windows);
    part = build_reshape(n->b, part, 3, (int64_t[]){rows, windows, 1});
    Value *same = node_binary(n, OP_equal, part, node_ints_value(n, at, (int)count));
    all = all ? node_binary(n, OP_and, all, same) : same;
  }
  return build_reduce_sum(n->b, build_cast(n->b, all, DT_f32), (int64_t[]){1}, 1, false);
}

// The n-grams of each length, and the columns of the result.
typedef struct Pool {
  Ints items, counts, indexes; // counts: the start of each length's n-grams in the items
  int64_t least, most, skips, width;
} Pool;

static bool read_pool(Node *n, Pool *p) {
  *p = (Pool){.least = node_int(n, "min_gram_length", 1),
              .most = node_int(n, "max_gram_length", 1),
              .skips = node_int(n, "max_skip_count", 0)};
  bool strings = node_string_list(n, "pool_strings", &p->items);
  if (n->b->failed) return false;
  if (!strings) node_list(n, "pool_int64s", &p->items);
  if (strings != node_is_string(n, 0))
    return node_fail(n, "its n-grams are of %s, and its operand is not",
                     strings ? "strings" : "numbers");
  node_list(n, "ngram_counts", &p->counts);
  node_list(n, "ngram_indexes", &p->indexes);
  if (p->least < 1 || p->most < p->least || p->skips < 0 || p->most > 1 << 16 || p->skips > 1 << 16)
    return node_fail(n, "n-grams of %lld to %lld elements with up to %lld skipped",
                     (long long)p->least, (long long)p->most, (long long)p->skips);
  int64_t grams = 0;
  for (int i = 0; i < p->counts.n; i++) {
    int64_t from = p->counts.at[i], to = i + 1 < p->counts.n ? p->counts.at[i + 1] : p->items.n;
    if (from < 0 || to < from || to > p->items.n || (to - from) % (i + 1))
      return node_fail(n, "ngram_counts has %lld", (long long)from);
    grams += (to - from) / (i + 1);
  }
  if (grams != p->indexes.n || grams == 0)
    return node_fail(n, "has %lld n-grams and %d indexes", (long long)grams, p->indexes.n);
  for (int i = 0; i < p->indexes.n; i++) {
    if (p->indexes.at[i] < 0 || p->indexes.at[i] > 1 << 24)
      return node_fail(n, "ngram_indexes has %lld", (long long)p->indexes.at[i]);
    if (p->indexes.at[i] >= p->width) p->width = p->indexes.at[i] + 1;
  }
  return true;
}

// The counts of all n-grams (rows, width), at their indexes.
static Value *counted(Node *n, Value *x, const Pool *p) {
  Value **part = arena_array(n->a, Value *, p->counts.n + 1);
  int64_t *column = arena_array(n->a, int64_t, p->width), first = 0, used = 0;
  bool *taken = arena_array(n->a, bool, p->width);
  int n_parts = 0;
  for (int i = 0; i < p->counts.n; i++) {
    int64_t size = i + 1, from = p->counts.at[i];
    int64_t to = i + 1 < p->counts.n ? p->counts.at[i + 1] : p->items.n, count = (to - from) / size;
    bool within = size >= p->least && size <= p->most && count > 0;
    Value *sum = NULL;
    // A single element has no distance to another one.
    for (int64_t step = 1; within && step <= (size == 1 ? 1 : p->skips + 1); step++) {
      if (sum && (size - 1) * step >= x->type->dim[1]) break;
      sum = build_add(n->b, sum, occurrences(n, x, p->items.at + from, count, size, step));
    }
    for (int64_t k = 0; within && k < count; k++) {
      int64_t at = p->indexes.at[first + k];
      if (taken[at]) {
        node_fail(n, "two n-grams have index %lld", (long long)at);
        return NULL;
      }
      taken[at] = true;
      column[at] = used++;
    }
    if (within) part[n_parts++] = sum;
    first += count;
  }
  // A column of zeros for indexes without an n-gram.
  int64_t rows[] = {x->type->dim[0], 1};
  part[n_parts++] = build_fill(n->b, DT_f32, 2, rows, 0);
  for (int64_t i = 0; i < p->width; i++)
    if (!taken[i]) column[i] = used;
  Value *all =
      n_parts == 1 ? part[0] : build_op(n->b, OP_concat, part, n_parts, ATTRS(a_i("axis", 1)));
  return build_op(n->b, OP_gather, IN(all, node_ints_value(n, column, (int)p->width)),
                  ATTRS(a_i("axis", 1)));
}

bool import_tf_idf_vectorizer(Node *n) {
  Value *x = n->in[0];
  const Type *t = x->type;
  const char *mode = node_str(n, "mode", "");
  bool tf = str_equal(mode, "TF"), idf = str_equal(mode, "IDF");
  Pool p;
  Floats weights;
  if (!tf && !idf && !str_equal(mode, "TFIDF")) return node_fail(n, "mode '%s' is unknown", mode);
  if (t->ndim > 2 || dtype_class[t->dtype] == 'F')
    return node_fail(n, "operand 0 is %s, and rows of integers are needed", type_text(n->a, t));
  if (!read_pool(n, &p) || !node_floats(n, "weights", &weights)) return false;
  if (weights.n && weights.n != p.indexes.n)
    return node_fail(n, "has %d weights for %d n-grams", weights.n, p.indexes.n);
  int64_t rows[] = {t->ndim == 2 ? t->dim[0] : 1, t->ndim == 0 ? 1 : t->dim[t->ndim - 1]};
  x = build_cast(n->b, build_reshape(n->b, x, 2, rows), DT_i64);
  Value *y = x ? counted(n, x, &p) : NULL;
  if (!y) return false;
  // The weight of the column, as in ONNX's reference implementation and in onnxruntime.
  double *weight = arena_array(n->a, double, p.width);
  for (int64_t i = 0; i < p.width; i++)
    weight[i] = weights.n == 0 ? 1 : i < weights.n ? weights.at[i] : 0;
  if (idf) y = build_cast(n->b, node_binary(n, OP_greater, y, node_like(n, y, 0)), DT_f32);
  if (!tf) y = node_mul(n, y, node_numbers(n, DT_f32, 1, &p.width, weight));
  n->out[0] = build_reshape(n->b, y, t->ndim == 2 ? 2 : 1,
                            (int64_t[]){t->ndim == 2 ? rows[0] : p.width, p.width});
  n->out_narrow[0] = 0;
  return true;
}
