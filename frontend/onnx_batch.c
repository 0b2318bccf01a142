// Finds the batch among the dimensions of the inputs: the symbol of --batch-dim, else the symbol on
// axis 0 of every input, else any dimension 0 that is not fixed.

#include <string.h>
#include <strings.h>

#include "onnx_shape.h"

const char *batch_symbol(const Shapes *s) {
  if (s->im->o->batch_dim) return s->im->o->batch_dim;
  // The symbol on axis 0 of all inputs that have axes.
  const char *shared = NULL;
  for (int i = 0; i < s->n; i++) {
    if (input_ndim(s->input[i]) == 0) continue;
    const char *name = dim_symbol(input_dim(s->input[i], 0));
    if (!*name || (shared && !str_equal(shared, name))) return NULL;
    shared = name;
  }
  return shared;
}

bool dim_is_batch(const Shapes *s, const char *symbol, size_t axis) {
  if (s->batch) return str_equal(symbol, s->batch);
  if (axis == 0) return true;
  // A symbol on axis 0 of some input is the batch in all its occurrences.
  return *symbol && name_map_find(&s->at_0, symbol) >= 0;
}

// Returns the first dimension with the symbol, or -1.
static int batch_axis(const Onnx__ValueInfoProto *v, const char *batch) {
  for (size_t axis = 0; axis < input_ndim(v); axis++)
    if (str_equal(dim_symbol(input_dim(v, axis)), batch)) return (int)axis;
  return -1;
}

// Returns the batch dimension of input `i`, or -1: the one with its symbol.  Without a symbol it is
// dimension 0 unless that is fixed; if all inputs' are fixed, it must have the length of the first
// input's.
int input_batch(const Shapes *s, int i) {
  if (s->batch) return batch_axis(s->input[i], s->batch);
  if (input_ndim(s->input[i]) == 0) return -1;
  const Dimension *dim = input_dim(s->input[i], 0);
  return !dim_is_fixed(dim) || (dim_is_fixed(s->first) && dim->dim_value == s->first->dim_value)
             ? 0
             : -1;
}

int onnx_declared_batch(const Import *im, const Onnx__ValueInfoProto *output, const Type *type) {
  if (!im->batch || input_ndim(output) != (size_t)type->ndim) return -1;
  return batch_axis(output, im->batch);
}

// Whether dimension 0 of some input takes --batch.
bool takes_batch(const Shapes *s) {
  for (int i = 0; i < s->n; i++) {
    if (input_ndim(s->input[i]) == 0) continue;
    const Dimension *dim = input_dim(s->input[i], 0);
    // Dimensions that --dim binds, by symbol or by position, do not take it.
    const char *place = str_format(s->im->a, "%s:0", onnx_str(s->input[i]->name));
    if (!dim_is_fixed(dim) && dim_option(s, dim_symbol(dim)) < 0 && dim_option(s, place) < 0)
      return true;
  }
  return false;
}

// Returns the first symbol after axis 0 that may be the batch, or NULL.  `bound`: one that --dim
// binds.
static const char *other_batch(const Shapes *s, bool bound, int *out_input, size_t *out_axis) {
  for (int i = 0; i < s->n && !s->im->o->batch_dim; i++)
    for (size_t axis = 1; axis < input_ndim(s->input[i]); axis++) {
      const char *name = dim_symbol(input_dim(s->input[i], axis));
      // --dim may have bound the symbol already.
      if (!*name || (dim_option(s, name) >= 0) != bound) continue;
      *out_input = i;
      *out_axis = axis;
      return name;
    }
  return NULL;
}

// Prints a hint at --batch-dim with that symbol, or else `hint`.
static void hint_at_batch_dim(const Shapes *s, bool bound, const char *hint) {
  int input;
  size_t axis;
  const char *name = other_batch(s, bound, &input, &axis);
  // Another symbol may be the batch.
  if (name)
    diag_hint(s->im->d, "--batch-dim %s, if the batch is dimension %zu of input '%s'", name, axis,
              onnx_str(s->input[input]->name));
  else
    diag_hint(s->im->d, "%s", hint);
}

// With axis 0 fixed in all inputs, the batch has the size of the export.
static bool check_fixed_batch(const Shapes *s) {
  const OnnxOptions *o = s->im->o;
  Diag *d = s->im->d;
  const Onnx__ValueInfoProto *fixed = NULL;
  bool as_asked = o->batch == 0;
  for (int i = 0; i < s->n; i++) {
    if (input_ndim(s->input[i]) == 0) continue;
    const Dimension *dim = input_dim(s->input[i], 0);
    if (!dim_is_fixed(dim)) return true;
    as_asked |= dim->dim_value == o->batch;
    if (!fixed) fixed = s->input[i];
  }
  // Without axes there is nothing to check.
  if (!fixed) return true;
  // --batch does not contradict the file; but a symbol bound by --dim may be the real batch.
  if (as_asked) {
    if (!other_batch(s, true, &(int){0}, &(size_t){0})) return true;
    diag_doubt(d, PROBLEM_batch, input_loc(s, fixed),
               "dimension 0 of input '%s', fixed at %lld, is the batch", onnx_str(fixed->name),
               (long long)input_dim(fixed, 0)->dim_value);
    hint_at_batch_dim(s, true, "");
    return true;
  }
  diag_problem(d, PROBLEM_batch, input_loc(s, fixed),
               "dimension 0 of input '%s' is fixed at %lld, so it is no batch of %lld",
               onnx_str(fixed->name), (long long)input_dim(fixed, 0)->dim_value,
               (long long)o->batch);
  hint_at_batch_dim(s, false, "export the model with a symbolic batch dimension");
  return false;
}

// --batch and --dim may both bind the batch, to one size.
static bool check_bound_batch(const Shapes *s) {
  int option = s->batch ? dim_option(s, s->batch) : -1;
  int64_t bound = dim_option_size(s, option), batch = s->im->o->batch;
  // One of the two is not given, or they agree.
  if (bound < 0 || batch == 0 || bound == batch) return true;
  diag_problem(s->im->d, PROBLEM_batch, s->im->file->loc,
               "the batch is '%s', which --dim %s makes %lld and --batch %lld", s->batch,
               s->im->o->dims[option], (long long)bound, (long long)batch);
  hint_at_batch_dim(s, false,
                    "give one of them; --batch-dim NAME says that the batch is another dimension");
  return false;
}

// Whether an exporter would call the batch so.
static bool is_batch_name(const char *symbol) {
  return strcasestr(symbol, "batch") || !strcasecmp(symbol, "n") || !strcasecmp(symbol, "b") ||
         !strcasecmp(symbol, "bs") || !strcasecmp(symbol, "bsz");
}

// Notes that dimension 0 is the batch only by its position, if another free dimension may be it:
// recurrent layers have the sequence first.
static void note_position(const Shapes *s) {
  const Onnx__ValueInfoProto *first = NULL, *other = NULL;
  size_t at = 0;
  for (int i = 0; i < s->n; i++)
    for (size_t axis = 0; axis < input_ndim(s->input[i]); axis++) {
      const Dimension *dim = input_dim(s->input[i], axis);
      if (dim_is_fixed(dim)) continue;
      if (axis == 0 && is_batch_name(dim_symbol(dim))) return;
      if (axis == 0 && !first) first = s->input[i];
      // A symbol that some input has in front is the batch there, too.
      if (axis > 0 && !other && !dim_is_batch(s, dim_symbol(dim), axis)) {
        other = s->input[i];
        at = axis;
      }
    }
  if (!first || !other) return;
  const char *symbol = dim_symbol(input_dim(first, 0)), *name = dim_symbol(input_dim(other, at));
  diag_remark(s->im->d, PROBLEM_batch_by_position, input_loc(s, first),
              "dimension 0 of input '%s'%s%s%s is taken as the batch, by its position",
              onnx_str(first->name), *symbol ? ", '" : "", symbol, *symbol ? "'," : "");
  if (*name)
    diag_hint(s->im->d, "--batch-dim %s, if the batch is dimension %zu of input '%s'", name, at,
              onnx_str(other->name));
  else
    diag_hint(s->im->d,
              "if the batch is dimension %zu of input '%s', export with a name for it, and give "
              "--batch-dim NAME",
              at, onnx_str(other->name));
}

bool check_batch(const Shapes *s) {
  const OnnxOptions *o = s->im->o;
  if (!o->batch_dim) {
    if (!check_fixed_batch(s) || !check_bound_batch(s)) return false;
    note_position(s);
    return true;
  }
  // --batch-dim must name a symbol of some input.
  for (int i = 0; i < s->n; i++)
    if (batch_axis(s->input[i], o->batch_dim) >= 0) return check_bound_batch(s);
  diag_problem(s->im->d, PROBLEM_batch, s->im->file->loc,
               "no input has a dimension '%s' for the batch", o->batch_dim);
  hint_at_symbols(s);
  return false;
}
