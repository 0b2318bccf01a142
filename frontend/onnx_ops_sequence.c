// Operators on sequences of tensors, and on optionals.
//
//     SplitToSequence(x, 64), axis=2 -> s         %s0 = slice %x …
//     SequenceAt(s, 0) -> q                  =>   %s1 = slice %x …
//     SequenceAt(s, 1) -> k                       q is %s0, k is %s1
//
// PyTorch's exporter writes every split() and chunk() this way.  Lengths and positions are known
// during the import, so a sequence is a list of values (onnx_node.h) and does not occur in the IR:
// operators that build one build its elements, operators that read one select from them.

#include <string.h>

#include "frontend/onnx_node.h"
#include "ir/graph.h"

static Sequence *sequence_new(Node *n, int64_t length, Value ***at) {
  Sequence *s = arena_one(n->a, Sequence);
  s->n = (int)length;
  s->at = *at = arena_array(n->a, Value *, length + 1);
  return s;
}

// Returns operand i; NULL, with a report, for a tensor.
static const Sequence *node_sequence(Node *n, int i) {
  const Sequence *s = n->in_sequence[i];
  if (s && !s->is_absent) return s;
  node_fail(n, "operand %d is not a sequence of tensors", i);
  return NULL;
}

// Reads the position in operand i, from the end if negative: one of `count`; by default the last.
static bool read_position(Node *n, int i, int count, int *out) {
  int64_t at;
  if (!node_setting_int(n, i, "position", count - 1, &at)) return false;
  // Insertion may be at the end, one after the last element.
  *out = (int)(at < 0 ? at + n->in_sequence[0]->n : at);
  if (at < -n->in_sequence[0]->n || at >= count)
    return node_fail(n, "position %lld is outside of a sequence of %d", (long long)at,
                     n->in_sequence[0]->n);
  return true;
}

// Splits into parts of a given size, the last of which may be shorter; of given sizes; or of size
// 1.
bool import_split_to_sequence(Node *n) {
  enum { MOST = 1 << 16 };
  const Type *x = n->in[0]->type;
  Ints sizes;
  bool given;
  int axis;
  if (!node_axis(n, node_int(n, "axis", 0), x->ndim, &axis)) return false;
  if (!node_ints(n, 1, "split", &sizes, &given)) return false;
  if (given && !node_in(n, 1)) return node_fail(n, "its attribute 'split' is not supported");
  // Without sizes the dimension may be dropped: parts have length 1.
  bool keep = node_int(n, "keepdims", 1) != 0 || given;
  bool listed = given && n->in[1]->type->ndim == 1;
  int64_t length = x->dim[axis], each = given && !listed ? sizes.at[0] : 1, from = 0;
  if (each < 1) return node_fail(n, "has parts of size %lld", (long long)each);
  // The last part may be shorter.
  int64_t parts = listed ? sizes.n : length / each + (length % each != 0);
  if (parts > MOST) return node_fail(n, "has more than %d parts", MOST);

  Value **at;
  n->out_sequence[0] = sequence_new(n, parts, &at);
  for (int64_t i = 0; i < parts; i++) {
    int64_t size = listed ? sizes.at[i] : length - from < each ? length - from : each;
    if (size < 0 || size > length - from)
      return node_fail(n, "its parts are longer than dimension %d of %s", axis, type_text(n->a, x));
    at[i] = node_part(n, n->in[0], axis, from, size);
    // The dimension of length 1 is removed.
    if (!keep && at[i]) {
      int64_t dim[MAX_NDIM];
      memcpy(dim, x->dim, sizeof dim);
      memmove(dim + axis, dim + axis + 1, (size_t)(x->ndim - 1 - axis) * sizeof *dim);
      at[i] = build_reshape(n->b, at[i], x->ndim - 1, dim);
    }
    from += size;
  }
  return from == length ||
         node_fail(n, "its parts are shorter than dimension %d of %s", axis, type_text(n->a, x));
}

bool import_sequence_construct(Node *n) {
  Value **at;
  for (int i = 0; i < n->n_in; i++)
    if (!n->in[i]) return node_fail(n, "operand %d is left out", i);
  n->out_sequence[0] = sequence_new(n, n->n_in, &at);
  memcpy(at, n->in, (size_t)n->n_in * sizeof *at);
  return true;
}

// Elements have their own types.
bool import_sequence_empty(Node *n) {
  Value **at;
  node_int(n, "dtype", 0);
  n->out_sequence[0] = sequence_new(n, 0, &at);
  return true;
}

bool import_sequence_at(Node *n) {
  const Sequence *s = node_sequence(n, 0);
  int i;
  if (!s || !read_position(n, 1, s->n, &i)) return false;
  n->out[0] = s->at[i];
  return true;
}

bool import_sequence_insert(Node *n) {
  const Sequence *s = node_sequence(n, 0);
  Value **at;
  int i;
  if (!s || !read_position(n, 2, s->n + 1, &i)) return false;
  if (!n->in[1]) return node_fail(n, "operand 1 is not a tensor");
  n->out_sequence[0] = sequence_new(n, s->n + 1, &at);
  // A new list: the old one may have other readers.
  memcpy(at, s->at, (size_t)i * sizeof *at);
  at[i] = n->in[1];
  memcpy(at + i + 1, s->at + i, (size_t)(s->n - i) * sizeof *at);
  return true;
}

bool import_sequence_erase(Node *n) {
  const Sequence *s = node_sequence(n, 0);
  Value **at;
  int i;
  if (!s || !read_position(n, 1, s->n, &i)) return false;
  n->out_sequence[0] = sequence_new(n, s->n - 1, &at);
  // A new list: the old one may have other readers.
  memcpy(at, s->at, (size_t)i * sizeof *at);
  memcpy(at + i, s->at + i + 1, (size_t)(s->n - 1 - i) * sizeof *at);
  return true;
}

bool import_sequence_length(Node *n) {
  const Sequence *s = node_sequence(n, 0);
  if (!s) return false;
  int64_t length = s->n;
  n->out[0] = build_constant(n->b, type_new(n->b->g->module, DT_i64, 0, NULL), &length);
  return true;
}

// Concatenates along an axis of the elements, or along a new one (torch.stack).
bool import_concat_from_sequence(Node *n) {
  const Sequence *s = node_sequence(n, 0);
  int64_t dim[MAX_NDIM];
  int axis;
  if (!s) return false;
  if (s->n == 0) return node_fail(n, "the sequence is empty");
  bool stack = node_int(n, "new_axis", 0) != 0;
  const Type *t = s->at[0]->type;
  if (!node_axis(n, node_int(n, "axis", 0), t->ndim + stack, &axis)) return false;
  if (t->ndim + stack > MAX_NDIM) return node_shape(n, t->ndim + stack, NULL);
  Value **in = arena_array(n->a, Value *, s->n);
  for (int i = 0; i < s->n; i++) {
    const Type *each = s->at[i]->type;
    if (each->ndim != t->ndim)
      return node_fail(n, "its elements are %s and %s", type_text(n->a, t), type_text(n->a, each));
    in[i] = s->at[i];
    if (!stack) continue;
    // Stacking adds a dimension of length 1 to each element.
    for (int k = 0; k <= t->ndim; k++)
      dim[k] = k < axis ? each->dim[k] : k == axis ? 1 : each->dim[k - 1];
    in[i] = build_reshape(n->b, in[i], t->ndim + 1, dim);
  }
  n->out[0] = s->n == 1 ? in[0] : build_op(n->b, OP_concat, in, s->n, ATTRS(a_i("axis", axis)));
  return true;
}

// -- Optionals ---------------------------------------------------------------------------------

// Whether operand 0 is left out, or an optional without a value.
static bool is_absent(const Node *n) {
  const Sequence *s = n->n_in > 0 ? n->in_sequence[0] : NULL;
  return s ? s->is_absent : !node_in(n, 0);
}

// An optional with a value is that value.
bool import_optional(Node *n) {
  (void)node_attr(n, "type");
  if (!is_absent(n)) return import_identity(n);
  Sequence *s = arena_one(n->a, Sequence);
  s->is_absent = true;
  n->out_sequence[0] = s;
  return true;
}

bool import_optional_has_element(Node *n) {
  n->out[0] = node_scalar(n, DT_bool, !is_absent(n));
  return true;
}

bool import_optional_get_element(Node *n) {
  if (is_absent(n)) return node_fail(n, "its operand has no value");
  return import_identity(n);
}
