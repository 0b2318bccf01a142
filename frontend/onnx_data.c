// Test data of ONNX: a file for each input and output of a model, of its declared type.
//
//     x: tensor                 TensorProto     a parameter x
//     s: seq(tensor)            SequenceProto   parameters s.0, s.1 …, with labels s[0], s[1] …
//     o: optional(tensor)       OptionalProto   a parameter o, or nothing
//
// The IR has only tensors.  So a sequence among the inputs has the length of its file, and an
// optional has a value or not, from the import on.

#include "frontend/onnx_tensor.h"
#include "frontend/onnx_walk.h"
#include "frontend/onnx_weights.h"

#include "data.pb-c.h"

// The arguments that all files of a model share.
typedef struct Reader {
  bool keep;
  OnnxStrings *strings; // NULL: they are refused
  Module *m;
  Arena *a;
  Diag *d;
} Reader;

static bool read_tensor(const Reader *r, const OnnxFile *f, const Onnx__TensorProto *proto,
                        Tensor *out) {
  OnnxTensor t;
  if (r->strings && proto->data_type == ONNX_STRING)
    return onnx_string_tensor(r->strings, proto, r->m, r->a, f->loc, out, r->d);
  if (!onnx_tensor(f, NULL, proto, r->a, f->loc, &t, r->d)) return false;
  const Type *type = type_new(r->m, onnx_compute_dtype(t.dtype, r->keep), t.ndim, t.dim);
  return onnx_tensor_load(f, &t, type, r->a, f->loc, out, r->d);
}

static bool read_sequence(const Reader *r, const OnnxFile *f, const Data__Sequence *s,
                          OnnxDatum *out) {
  out->is_sequence = true;
  out->n = (int)s->n_tensor_values;
  out->at = arena_array(r->a, Tensor, out->n + 1);
  for (int i = 0; i < out->n; i++)
    if (!read_tensor(r, f, s->tensor_values[i], &out->at[i])) return false;
  return true;
}

// `type`: NULL for a tensor.
static bool read_file(const Reader *r, const char *path, const Onnx__TypeProto *type,
                      OnnxDatum *out) {
  OnnxFile f;
  int kind = type ? (int)type->value_case : ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  bool sequence = kind == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE,
       optional = kind == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE;
  const ProtobufCMessageDescriptor *message = sequence   ? &data__sequence__descriptor
                                              : optional ? &data__optional__descriptor
                                                         : &onnx__tensor_proto__descriptor;
  *out = (OnnxDatum){0};
  if (!onnx_open(&f, path, message, r->a, r->d)) return false;
  const void *read = f.message;
  const Data__Optional *o = optional ? read : NULL;
  const Onnx__TensorProto *tensor = optional ? o->tensor_value : sequence ? NULL : read;
  const Data__Sequence *list = optional ? o->sequence_value : sequence ? read : NULL;
  bool ok = true;
  if (list) {
    ok = read_sequence(r, &f, list, out);
  } else if (tensor) {
    out->n = 1;
    out->at = arena_one(r->a, Tensor);
    ok = read_tensor(r, &f, tensor, out->at);
  } else {
    out->is_absent = true;
  }
  onnx_close(&f);
  return ok;
}

bool onnx_tensor_read(const char *path, bool keep, OnnxStrings *strings, Module *m, Arena *a,
                      Tensor *out, Diag *d) {
  const Reader r = {keep, strings, m, a, d};
  OnnxDatum datum;
  if (!read_file(&r, path, NULL, &datum)) return false;
  *out = *datum.at;
  return true;
}

bool onnx_data_read(const char *model, bool outputs, const char *const *path, int n,
                    OnnxStrings *strings, Module *m, Arena *a, OnnxDatum *out, Diag *d) {
  const Reader r = {true, strings, m, a, d};
  OnnxFile f;
  if (!onnx_open(&f, model, &onnx__model_proto__descriptor, a, d)) return false;
  const Onnx__GraphProto *g = onnx_model(&f)->graph;
  size_t n_values = g ? outputs ? g->n_output : g->n_input : 0, at = 0;
  NameMap initial = {.arena = a};
  for (size_t i = 0; g && !outputs && i < g->n_initializer; i++)
    name_map_add(&initial, onnx_str(g->initializer[i]->name), 0);
  bool ok = true;
  for (int i = 0; i < n && ok; i++, at++) {
    // Initializers that are listed as inputs have no file.
    while (at < n_values && !outputs && name_map_find(&initial, onnx_str(g->input[at]->name)) >= 0)
      at++;
    const Onnx__ValueInfoProto *v = at >= n_values ? NULL : outputs ? g->output[at] : g->input[at];
    ok = read_file(&r, path[i], v ? v->type : NULL, &out[i]);
  }
  onnx_close(&f);
  return ok;
}

// -- Inputs that are no tensors ----------------------------------------------------------------

bool onnx_other_input(Import *im, const OnnxInput *input, const char *path, Binding *out) {
  // Elements of a sequence are not told apart by their types, so none are strings.
  const Reader r = {im->o->keep_f64, NULL, im->m, im->a, im->d};
  OnnxDatum datum;
  if (!read_file(&r, path, input->other, &datum)) return false;
  Value **at = arena_array(im->a, Value *, datum.n + 1);
  for (int i = 0; i < datum.n; i++) {
    OnnxInput one = {.name = input->name, .type = datum.at[i].type, .batch = -1};
    if (datum.is_sequence) one.name = str_format(im->a, "%s[%d]", input->name, i);
    at[i] = onnx_input(im, &one);
    onnx_learn_hint(im, at[i], datum.at[i]);
  }
  *out = (Binding){.name = input->name};
  if (datum.is_sequence || datum.is_absent) {
    Sequence *s = arena_one(im->a, Sequence);
    *s = (Sequence){.n = datum.n, .at = at, .is_absent = datum.is_absent};
    out->sequence = s;
  } else {
    out->v = at[0];
  }
  return true;
}
