// The shapes of the inputs: symbolic dimensions bound by --batch, --batch-dim and --dim.
//
//     input x: float[N, 3, H, W]       --batch 16 --dim H=224 --dim W=224    =>  f32[16,3,224,224]
//
// The batch dimension is the symbol that --batch-dim names, else the one that stands on axis 0 of
// every input, else whatever is not fixed on axis 0.  A symbol that is bound is bound wherever it
// stands.  A dimension without a symbol (-1, or nothing at all) is bound by its place: --dim
// x:1=80.

#include <stdlib.h>
#include <string.h>

#include "frontend/onnx_walk.h"

typedef struct Shapes {
  Import *im;
  const Onnx__ValueInfoProto **input;
  int n;
  const char *batch; // the symbol of the batch dimension, or NULL
  bool *dim_used;    // of the options' dims
} Shapes;

typedef Onnx__TensorShapeProto__Dimension Dimension;

static const Onnx__TypeProto__Tensor *tensor_type(const Onnx__ValueInfoProto *input) {
  if (!input->type || input->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) return NULL;
  return input->type->tensor_type;
}

static size_t input_rank(const Onnx__ValueInfoProto *input) {
  const Onnx__TypeProto__Tensor *t = tensor_type(input);
  return t && t->shape ? t->shape->n_dim : 0;
}

static const Dimension *input_dim(const Onnx__ValueInfoProto *input, size_t axis) {
  return tensor_type(input)->shape->dim[axis];
}

static bool is_fixed(const Dimension *dim) {
  return dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
         dim->dim_value >= 0;
}

static const char *symbol(const Dimension *dim) {
  if (dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM) return "";
  return onnx_str(dim->dim_param);
}

static const Loc *input_loc(const Shapes *s, const Onnx__ValueInfoProto *input) {
  return onnx_place(s->im->file, s->im->m->arena, onnx_str(input->name));
}

// The symbol on axis 0 of all inputs that have axes, or NULL.
static const char *shared_symbol(const Shapes *s) {
  const char *shared = NULL;
  for (int i = 0; i < s->n; i++) {
    if (input_rank(s->input[i]) == 0) continue;
    const char *name = symbol(input_dim(s->input[i], 0));
    if (!*name || (shared && !str_equal(shared, name))) return NULL;
    shared = name;
  }
  return shared;
}

// Is the symbol on axis 0 of some input?
static bool on_axis_0(const Shapes *s, const char *name) {
  for (int i = 0; i < s->n; i++)
    if (input_rank(s->input[i]) > 0 && str_equal(symbol(input_dim(s->input[i], 0)), name))
      return true;
  return false;
}

// The first dimension with the symbol, or -1.
static int batch_axis(const Onnx__ValueInfoProto *v, const char *batch) {
  for (size_t axis = 0; axis < input_rank(v); axis++)
    if (str_equal(symbol(input_dim(v, axis)), batch)) return (int)axis;
  return -1;
}

// The dimension of input `i` that is the batch, or -1: the one with its symbol.  Without a symbol
// it is dimension 0 where that is not fixed; where all inputs' are, it is as long as that of the
// first input with dimensions.
static int input_batch(const Shapes *s, int i) {
  if (s->batch) return batch_axis(s->input[i], s->batch);
  const Dimension *first = NULL;
  for (int k = 0; k < s->n; k++) {
    if (input_rank(s->input[k]) == 0) continue;
    const Dimension *dim = input_dim(s->input[k], 0);
    if (!first || (is_fixed(first) && !is_fixed(dim))) first = dim;
  }
  if (input_rank(s->input[i]) == 0) return -1;
  const Dimension *dim = input_dim(s->input[i], 0);
  return !is_fixed(dim) || (is_fixed(first) && dim->dim_value == first->dim_value) ? 0 : -1;
}

int onnx_declared_batch(const Import *im, const Onnx__ValueInfoProto *output, const Type *type) {
  if (!im->batch || input_rank(output) != (size_t)type->rank) return -1;
  return batch_axis(output, im->batch);
}

// The index of the last --dim NAME=VALUE, or -1.
static int find_dim(const Shapes *s, const char *name) {
  const OnnxOptions *o = s->im->o;
  size_t length = strlen(name);
  for (int i = o->n_dims - 1; i >= 0 && length > 0; i--)
    if (str_starts(o->dims[i], name) && o->dims[i][length] == '=') return i;
  return -1;
}

// Its VALUE, or -1.
static int64_t dim_size(const Shapes *s, int option) {
  return option < 0 ? -1 : strtoll(strrchr(s->im->o->dims[option], '=') + 1, NULL, 10);
}

static int64_t option_dim(Shapes *s, const char *name) {
  int option = find_dim(s, name);
  if (option >= 0) s->dim_used[option] = true;
  return dim_size(s, option);
}

// Whether dimension 0 of some input takes --batch.
static bool takes_batch(const Shapes *s) {
  for (int i = 0; i < s->n; i++) {
    if (input_rank(s->input[i]) == 0) continue;
    const Dimension *dim = input_dim(s->input[i], 0);
    const char *place = str_format(s->im->a, "%s:0", onnx_str(s->input[i]->name));
    if (!is_fixed(dim) && find_dim(s, symbol(dim)) < 0 && find_dim(s, place) < 0) return true;
  }
  return false;
}

static void hint_at_size(Shapes *s, const char *name, const char *place, bool is_batch) {
  if (is_batch)
    diag_hint(s->im->d, "give the size of a batch with --batch");
  else if (*name && !s->im->o->batch_dim && !takes_batch(s))
    diag_hint(s->im->d, "give its size with --dim %s=SIZE, or --batch-dim %s if it is the batch",
              name, name);
  else
    diag_hint(s->im->d, "give its size with --dim %s=SIZE", *name ? name : place);
}

static bool bind_dim(Shapes *s, const Onnx__ValueInfoProto *input, size_t axis, int64_t *out) {
  Import *im = s->im;
  const Dimension *dim = input_dim(input, axis);
  const char *name = symbol(dim), *place = str_format(im->a, "%s:%zu", onnx_str(input->name), axis);
  if (is_fixed(dim)) {
    *out = dim->dim_value;
    return true;
  }
  bool is_batch = s->batch ? str_equal(name, s->batch) : axis == 0 || (*name && on_axis_0(s, name));
  *out = option_dim(s, place);
  if (*out < 0) *out = option_dim(s, name);
  if (*out < 0 && is_batch && im->o->batch > 0) *out = im->o->batch;
  if (*out >= 0) return true;
  if (*name)
    diag_error(im->d, input_loc(s, input), "dimension %zu of input '%s', '%s', is not bound", axis,
               onnx_str(input->name), name);
  else
    diag_error(im->d, input_loc(s, input), "dimension %zu of input '%s' is not bound", axis,
               onnx_str(input->name));
  hint_at_size(s, name, place, is_batch);
  return false;
}

static const Type *input_type(Shapes *s, const Onnx__ValueInfoProto *input) {
  Import *im = s->im;
  const char *name = onnx_str(input->name);
  const Onnx__TypeProto__Tensor *t = tensor_type(input);
  DType dtype;
  if (!t) {
    diag_error(im->d, input_loc(s, input), "input '%s' is not a tensor", name);
    return NULL;
  }
  if (!onnx_dtype(t->elem_type, &dtype)) {
    diag_error(im->d, input_loc(s, input),
               "input '%s' has elements of type %s, which is not "
               "supported",
               name, onnx_dtype_name(t->elem_type));
    return NULL;
  }
  if (!t->shape) {
    diag_error(im->d, input_loc(s, input), "input '%s' has no shape", name);
    diag_hint(im->d, "export the model with the shapes of its inputs");
    return NULL;
  }
  if (t->shape->n_dim > MAX_RANK) {
    diag_error(im->d, input_loc(s, input), "input '%s' has %zu dimensions; the limit is %d", name,
               t->shape->n_dim, MAX_RANK);
    return NULL;
  }
  int64_t dim[MAX_RANK], count = 8;
  bool ok = true;
  for (size_t i = 0; i < t->shape->n_dim; i++) {
    ok = bind_dim(s, input, i, &dim[i]) && ok;
    if (ok && __builtin_mul_overflow(count, dim[i] ? dim[i] : 1, &count)) {
      diag_error(im->d, input_loc(s, input), "the size of input '%s' overflows", name);
      return NULL;
    }
  }
  if (!ok) return NULL;
  return type_new(im->m, onnx_compute_dtype(dtype, im->o->keep_f64), (int)t->shape->n_dim, dim);
}

static void hint_at_symbols(const Shapes *s) {
  StrBuf names = {.arena = s->im->a};
  for (int i = 0; i < s->n; i++)
    for (size_t axis = 0; axis < input_rank(s->input[i]); axis++) {
      const char *name = symbol(input_dim(s->input[i], axis));
      if (!name || !*name) continue;
      const char *item = str_format(s->im->a, "'%s'", name);
      if (!names.at || !strstr(names.at, item))
        strbuf_addf(&names, "%s%s", names.n ? ", " : "", item);
    }
  diag_hint(s->im->d, "%s%s", names.n ? "they are " : "all are fixed", names.n ? names.at : "");
}

// The first symbol after axis 0 that may be the batch, or NULL.  `bound`: one that --dim binds.
static const char *other_batch(const Shapes *s, bool bound, int *out_input, size_t *out_axis) {
  for (int i = 0; i < s->n && !s->im->o->batch_dim; i++)
    for (size_t axis = 1; axis < input_rank(s->input[i]); axis++) {
      const char *name = symbol(input_dim(s->input[i], axis));
      if (!*name || (find_dim(s, name) >= 0) != bound) continue;
      *out_input = i;
      *out_axis = axis;
      return name;
    }
  return NULL;
}

// A hint at --batch-dim with that symbol, or else `hint`.
static void hint_at_batch_dim(const Shapes *s, bool bound, const char *hint) {
  int input;
  size_t axis;
  const char *name = other_batch(s, bound, &input, &axis);
  if (name)
    diag_hint(s->im->d, "--batch-dim %s, if the batch is dimension %zu of input '%s'", name, axis,
              onnx_str(s->input[input]->name));
  else
    diag_hint(s->im->d, "%s", hint);
}

// With axis 0 fixed in all inputs, the batch is of the size that the model was exported with.
static bool check_fixed_batch(const Shapes *s) {
  const OnnxOptions *o = s->im->o;
  Diag *d = s->im->d;
  const Onnx__ValueInfoProto *fixed = NULL;
  bool as_asked = o->batch == 0;
  for (int i = 0; i < s->n; i++) {
    if (input_rank(s->input[i]) == 0) continue;
    const Dimension *dim = input_dim(s->input[i], 0);
    if (!is_fixed(dim)) return true;
    as_asked |= dim->dim_value == o->batch;
    if (!fixed) fixed = s->input[i];
  }
  if (!fixed) return true;
  if (as_asked) {
    if (!other_batch(s, true, &(int){0}, &(size_t){0})) return true;
    diag_warning(d, input_loc(s, fixed), "dimension 0 of input '%s', fixed at %lld, is the batch",
                 onnx_str(fixed->name), (long long)input_dim(fixed, 0)->dim_value);
    hint_at_batch_dim(s, true, "");
    return true;
  }
  diag_error(d, input_loc(s, fixed),
             "dimension 0 of input '%s' is fixed at %lld, so it is no batch of %lld",
             onnx_str(fixed->name), (long long)input_dim(fixed, 0)->dim_value, (long long)o->batch);
  hint_at_batch_dim(s, false, "export the model with a symbolic batch dimension");
  return false;
}

// --batch and --dim may both bind the batch, to one size.
static bool check_bound_batch(const Shapes *s) {
  int option = s->batch ? find_dim(s, s->batch) : -1;
  int64_t bound = dim_size(s, option), batch = s->im->o->batch;
  if (bound < 0 || batch == 0 || bound == batch) return true;
  diag_error(s->im->d, s->im->file->loc,
             "the batch is '%s', which --dim %s makes %lld and --batch %lld", s->batch,
             s->im->o->dims[option], (long long)bound, (long long)batch);
  hint_at_batch_dim(s, false,
                    "give one of them; --batch-dim NAME says that the batch is another dimension");
  return false;
}

static bool check_batch(Shapes *s) {
  const OnnxOptions *o = s->im->o;
  if (!o->batch_dim) return check_fixed_batch(s) && check_bound_batch(s);
  for (int i = 0; i < s->n; i++)
    if (batch_axis(s->input[i], o->batch_dim) >= 0) return check_bound_batch(s);
  diag_error(s->im->d, s->im->file->loc, "no input has a dimension '%s' for the batch",
             o->batch_dim);
  hint_at_symbols(s);
  return false;
}

static bool check_options(Shapes *s) {
  const OnnxOptions *o = s->im->o;
  bool ok = true;
  for (int i = 0; i < o->n_dims; i++) {
    const char *equals = strrchr(o->dims[i], '=');
    char *end = NULL;
    if (!equals || equals == o->dims[i] || strtoll(equals + 1, &end, 10) < 1 || *end)
      ok = diag_error(s->im->d, NULL, "--dim '%s' is not NAME=SIZE", o->dims[i]);
  }
  return ok;
}

bool onnx_inputs(Import *im, OnnxInput *inputs, int *n_inputs) {
  const Onnx__GraphProto *graph = onnx_model(im->file)->graph;
  Shapes s = {.im = im};
  s.input = arena_array(im->a, const Onnx__ValueInfoProto *, graph->n_input);
  s.dim_used = arena_array(im->a, bool, im->o->n_dims);
  // Before IR version 4, initializers stood among the inputs as well.
  NameMap initial = {.arena = im->a};
  for (size_t i = 0; i < graph->n_initializer; i++)
    name_map_add(&initial, onnx_str(graph->initializer[i]->name), 0);
  for (size_t i = 0; i < graph->n_input; i++)
    if (name_map_find(&initial, onnx_str(graph->input[i]->name)) < 0)
      s.input[s.n++] = graph->input[i];
  s.batch = im->batch = im->o->batch_dim ? im->o->batch_dim : shared_symbol(&s);

  bool ok = check_options(&s);
  ok = check_batch(&s) && ok;
  bool named = ok; // otherwise no input's dimensions can be bound
  for (int i = 0; i < s.n; i++) {
    const Type *type = named ? input_type(&s, s.input[i]) : NULL;
    inputs[i] = (OnnxInput){onnx_str(s.input[i]->name), type, input_batch(&s, i)};
    ok = ok && inputs[i].type;
    if (inputs[i].type) onnx_devices_input(im, s.input[i], inputs[i].type);
  }
  *n_inputs = s.n;
  for (int i = 0; ok && i < im->o->n_dims; i++)
    if (!s.dim_used[i]) {
      diag_error(im->d, im->file->loc, "--dim '%s' names no free dimension of an input",
                 im->o->dims[i]);
      hint_at_symbols(&s);
      return false;
    }
  return ok;
}
