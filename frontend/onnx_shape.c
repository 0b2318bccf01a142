// The shapes of the inputs: symbolic dimensions bound by --batch, --batch-dim and --dim.
//
//     input x: float[N, 3, H, W]       --batch 16 --dim H=224 --dim W=224    =>  f32[16,3,224,224]
//
// A symbol is bound in all its occurrences.  A dimension without a symbol (-1, or nothing at all)
// is bound by its position: --dim x:1=80.

#include <stdlib.h>
#include <string.h>

#include "frontend/onnx_tensor.h"
#include "onnx_shape.h"

static const Onnx__TypeProto__Tensor *tensor_type(const Onnx__ValueInfoProto *input) {
  if (!input->type || input->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) return NULL;
  return input->type->tensor_type;
}

size_t input_ndim(const Onnx__ValueInfoProto *input) {
  const Onnx__TypeProto__Tensor *t = tensor_type(input);
  return t && t->shape ? t->shape->n_dim : 0;
}

const Dimension *input_dim(const Onnx__ValueInfoProto *input, size_t axis) {
  return tensor_type(input)->shape->dim[axis];
}

bool dim_is_fixed(const Dimension *dim) {
  return dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
         dim->dim_value >= 0;
}

const char *dim_symbol(const Dimension *dim) {
  if (dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM) return "";
  return onnx_str(dim->dim_param);
}

const Loc *input_loc(const Shapes *s, const Onnx__ValueInfoProto *input) {
  return onnx_place(s->im->file, s->im->m->arena, onnx_str(input->name));
}

// Returns the index of the last --dim NAME=VALUE, or -1.
int dim_option(const Shapes *s, const char *name) {
  const OnnxOptions *o = s->im->o;
  size_t length = strlen(name);
  // The last one wins.
  for (int i = o->n_dims - 1; i >= 0 && length > 0; i--)
    if (str_starts(o->dims[i], name) && o->dims[i][length] == '=') return i;
  return -1;
}

// Returns its VALUE, or -1.
int64_t dim_option_size(const Shapes *s, int option) {
  return option < 0 ? -1 : strtoll(strrchr(s->im->o->dims[option], '=') + 1, NULL, 10);
}

void hint_at_symbols(const Shapes *s) {
  StrBuf names = {.arena = s->im->a};
  for (int i = 0; i < s->n; i++)
    for (size_t axis = 0; axis < input_ndim(s->input[i]); axis++) {
      const char *name = dim_symbol(input_dim(s->input[i], axis));
      if (!name || !*name) continue;
      const char *item = str_format(s->im->a, "'%s'", name);
      // Each symbol once.
      if (!names.at || !strstr(names.at, item))
        strbuf_addf(&names, "%s%s", names.n ? ", " : "", item);
    }
  diag_hint(s->im->d, "%s%s", names.n ? "they are " : "all are fixed", names.n ? names.at : "");
}

static int64_t option_dim(Shapes *s, const char *name) {
  int option = dim_option(s, name);
  if (option >= 0) s->dim_used[option] = true;
  return dim_option_size(s, option);
}

// Returns the dimension of the hint for input `i`; -1 without one.
static int64_t hinted_dim(const Shapes *s, int i, size_t axis) {
  const char *path = onnx_hint_path(s->im, i);
  Tensor t;
  if (!path || !onnx_tensor_read(path, true, s->im->o->strings, s->im->m, s->im->a, &t, s->im->d))
    return -1;
  return (size_t)t.type->ndim == input_ndim(s->input[i]) ? t.type->dim[axis] : -1;
}

static bool bind_dim(Shapes *s, int i, size_t axis, int64_t *out) {
  Import *im = s->im;
  const Onnx__ValueInfoProto *input = s->input[i];
  const Dimension *dim = input_dim(input, axis);
  const char *name = dim_symbol(dim),
             *place = str_format(im->a, "%s:%zu", onnx_str(input->name), axis);
  if (dim_is_fixed(dim)) {
    *out = dim->dim_value;
    return true;
  }
  // Options by precedence: --dim by position, --dim by symbol, --batch, the input's value.
  bool is_batch = dim_is_batch(s, name, axis);
  *out = option_dim(s, place);
  if (*out < 0) *out = option_dim(s, name);
  if (*out < 0 && is_batch && im->o->batch > 0) *out = im->o->batch;
  if (*out < 0) *out = hinted_dim(s, i, axis);
  if (*out >= 0) {
    onnx_declare_symbol(im, name, *out);
    return true;
  }
  if (*name)
    diag_problem(im->d, PROBLEM_dimension, input_loc(s, input),
                 "dimension %zu of input '%s', '%s', is not bound", axis, onnx_str(input->name),
                 name);
  else
    diag_problem(im->d, PROBLEM_dimension, input_loc(s, input),
                 "dimension %zu of input '%s' is not bound", axis, onnx_str(input->name));
  // The hint names the option that binds it.
  if (is_batch)
    diag_hint(im->d, "give the size of a batch with --batch");
  else if (*name && !im->o->batch_dim && !takes_batch(s))
    diag_hint(im->d, "give its size with --dim %s=SIZE, or --batch-dim %s if it is the batch", name,
              name);
  else
    diag_hint(im->d, "give its size with --dim %s=SIZE", *name ? name : place);
  return false;
}

static const Type *input_type(Shapes *s, int input_index) {
  Import *im = s->im;
  const Onnx__ValueInfoProto *input = s->input[input_index];
  const char *name = onnx_str(input->name);
  const Onnx__TypeProto__Tensor *t = tensor_type(input);
  DType dtype;
  if (!t) {
    int kind = input->type ? (int)input->type->value_case : 0;
    bool sequence = kind == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE,
         optional = kind == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE;
    diag_problem(im->d, PROBLEM_input, input_loc(s, input), "input '%s' is %s", name,
                 sequence   ? "a sequence of tensors"
                 : optional ? "an optional"
                            : "not a tensor");
    if (sequence || optional)
      diag_hint(im->d, "its values are not known at compile time: export the model with an input "
                       "for each tensor");
    return NULL;
  }
  bool strings = t->elem_type == ONNX_STRING && im->o->strings;
  if (strings) {
    dtype = DT_i64;
  } else if (!onnx_dtype(t->elem_type, &dtype)) {
    diag_problem(im->d, PROBLEM_input, input_loc(s, input),
                 "input '%s' has elements of type %s, which is not "
                 "supported",
                 name, onnx_dtype_name(t->elem_type));
    if (t->elem_type == ONNX_STRING)
      diag_hint(im->d, "a program has no strings: encode them before the model, and pass their "
                       "numbers as the input");
    return NULL;
  }
  if (!t->shape) {
    diag_problem(im->d, PROBLEM_input, input_loc(s, input), "input '%s' has no shape", name);
    diag_hint(im->d, "export the model with the shapes of its inputs");
    return NULL;
  }
  if (t->shape->n_dim > MAX_NDIM) {
    diag_problem(im->d, PROBLEM_input, input_loc(s, input),
                 "input '%s' has %zu dimensions; the limit is %d", name, t->shape->n_dim, MAX_NDIM);
    return NULL;
  }
  // The largest element has 8 bytes, so the size in bytes cannot overflow either.
  int64_t dim[MAX_NDIM], count = 8;
  // All dimensions are bound, so that all errors are reported at once.
  bool ok = true;
  for (size_t i = 0; i < t->shape->n_dim; i++) {
    ok = bind_dim(s, input_index, i, &dim[i]) && ok;
    if (ok && __builtin_mul_overflow(count, dim[i] ? dim[i] : 1, &count)) {
      diag_problem(im->d, PROBLEM_input, input_loc(s, input), "the size of input '%s' overflows",
                   name);
      return NULL;
    }
  }
  if (!ok) return NULL;
  return type_new(im->m, onnx_compute_dtype(dtype, im->o->keep_f64), (int)t->shape->n_dim, dim);
}

// Returns the type of a sequence or an optional of which the value is known.
static const Onnx__TypeProto *other_type(const Shapes *s, int i) {
  const Onnx__TypeProto *type = s->input[i]->type;
  if (!type || !onnx_hint_path(s->im, i)) return NULL;
  bool other = type->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE ||
               type->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE;
  return other ? type : NULL;
}

bool onnx_inputs(Import *im, OnnxInput *inputs, int *n_inputs) {
  const Onnx__GraphProto *graph = onnx_model(im->file)->graph;
  Shapes s = {.im = im};
  s.input = arena_array(im->a, const Onnx__ValueInfoProto *, graph->n_input);
  s.dim_used = arena_array(im->a, bool, im->o->n_dims);
  // Before IR version 4, initializers were listed among the inputs as well.
  NameMap initial = {.arena = im->a};
  for (size_t i = 0; i < graph->n_initializer; i++)
    name_map_add(&initial, onnx_str(graph->initializer[i]->name), 0);
  for (size_t i = 0; i < graph->n_input; i++)
    if (name_map_find(&initial, onnx_str(graph->input[i]->name)) < 0)
      s.input[s.n++] = graph->input[i];
  s.at_0 = (NameMap){.arena = im->a};
  for (int i = 0; i < s.n; i++) {
    if (input_ndim(s.input[i]) == 0) continue;
    const Dimension *dim = input_dim(s.input[i], 0);
    if (*dim_symbol(dim)) name_map_add(&s.at_0, dim_symbol(dim), i);
    // A symbolic dimension is preferred to a fixed one.
    if (!s.first || (dim_is_fixed(s.first) && !dim_is_fixed(dim))) s.first = dim;
  }
  s.batch = im->batch = batch_symbol(&s);

  // Every --dim is NAME=SIZE, with a size from 1.
  const OnnxOptions *o = im->o;
  bool ok = true;
  for (int i = 0; i < o->n_dims; i++) {
    const char *equals = strrchr(o->dims[i], '=');
    char *end = NULL;
    if (!equals || equals == o->dims[i] || strtoll(equals + 1, &end, 10) < 1 || *end)
      ok = diag_problem(im->d, PROBLEM_dimension, NULL, "--dim '%s' is not NAME=SIZE", o->dims[i]);
  }
  ok = check_batch(&s) && ok;
  bool named = ok; // otherwise no input's dimensions can be bound
  for (int i = 0; i < s.n; i++) {
    // Each input with its type and its batch dimension.
    const Onnx__TypeProto *other = named ? other_type(&s, i) : NULL;
    const Type *type = named && !other ? input_type(&s, i) : NULL;
    int data_type = type ? tensor_type(s.input[i])->elem_type : 0;
    inputs[i] = (OnnxInput){onnx_str(s.input[i]->name), type,
                            onnx_narrow(data_type) || data_type == ONNX_STRING ? data_type : 0,
                            input_batch(&s, i), other};
    ok = ok && (type || other);
    if (inputs[i].type) onnx_devices_input(im, s.input[i], inputs[i].type);
  }
  *n_inputs = s.n;
  for (int i = 0; ok && i < im->o->n_dims; i++)
    if (!s.dim_used[i]) {
      diag_problem(im->d, PROBLEM_dimension, im->file->loc,
                   "--dim '%s' names no free dimension of an input", im->o->dims[i]);
      hint_at_symbols(&s);
      return false;
    }
  return ok;
}
