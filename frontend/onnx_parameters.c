// Classifies initializers: trained weights, frozen weights, and constants.
//
// An ONNX file does not have these classes.  Only this file decides, and each decision has a
// reason, which nnaot -v prints:
//
//     fc.weight   InputSpec.kind PARAMETER              trained, as PyTorch's exporter says
//     fc.bias     nnaot.weight/fc.bias = FROZEN         kept, as nnaot-export says: no requires_grad
//     freqs       InputSpec.kind BUFFER                 kept: saved, not trained
//     val_9       folded_from ['fc.weight']             trained: its transpose, say; with a warning
//     val_33      nothing, or folded_from ['val_13']    a number of the program: a constant
//
// PyTorch's exporter (dynamo=True) writes these facts into the metadata of values, nnaot-export
// into that of the model; they are used if some value of the model is a PARAMETER.  In other models
// every floating-point initializer is a weight, except by its name, its values or its readers:
//
//     onnx::Mul_17 []          one number, with a name that an exporter made up: a constant
//     mask [5,5], -inf         not finite, or not in f32: a constant
//     cw                       class weights of a loss: kept, as any operand of such a slot
//     eps                      sqrt(var + eps): kept
//     mean [1,3,1,1]           (image - mean) / std ahead of the first contraction: kept
//
// Weights that --train matches are trained in any case.

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx_walk.h"

enum {
  MAX_CONSTANT_BYTES = 4 << 20, // of an initializer that becomes a constant
  MAX_READ_BYTES = 16 << 20,    // of an initializer with values to inspect
};

typedef struct Reason {
  const char *text;
  bool trained, constant, doubtful;
} Reason;

static const Reason reasons[] = {
    [WHY_parameter] = {"PyTorch calls it a parameter", .trained = true},
    [WHY_frozen] = {"a parameter of PyTorch without requires_grad"},
    [WHY_buffer] = {"PyTorch calls it a buffer"},
    [WHY_folded] = {"the exporter computed it from parameters", .trained = true, .doubtful = true},
    [WHY_tied] = {"a copy of another weight, which trains apart", .trained = true,
                  .doubtful = true},
    [WHY_number] = {"a number of the program", .constant = true},
    [WHY_integer] = {"integers", .constant = true},
    [WHY_narrow] = {"of 8 bits or less", .constant = true},
    [WHY_plain] = {"a floating-point initializer", .trained = true},
    [WHY_scalar] = {"a single number with a name of its own", .trained = true, .doubtful = true},
    [WHY_made_up] = {"a single number with a name that an exporter made up", .constant = true},
    [WHY_not_finite] = {"holds infinities, or numbers too large for f32", .constant = true},
    [WHY_statistic] = {"running statistics of BatchNormalization"},
    [WHY_class_weights] = {"class weights of a loss"},
    [WHY_epsilon] = {"added under a root, as an epsilon is"},
    [WHY_image] = {"shifts or scales the channels of an input image", .doubtful = true},
    [WHY_quantizes] = {"a scale of quantization"},
    [WHY_state] = {"the initial state of each sample"},
    [WHY_asked] = {"--train", .trained = true},
};

// -- Metadata ------------------------------------------------------------------------------------

// Adds the origin of a name; the first one wins.
static void add_origin(Import *im, const char *name, const char *text) {
  if (!name_map_add(&im->origins, name, im->origins.n)) return;
  im->origin_text[im->origins.n - 1] = text;
  im->has_origins = im->has_origins || str_starts(text, "PARAMETER");
}

void onnx_read_origins(Import *im) {
  static const char prefix[] = "nnaot.weight/";
  const Onnx__ModelProto *model = onnx_model(im->file);
  const Onnx__GraphProto *graph = model->graph;
  im->origins = (NameMap){.arena = im->a};
  im->origin_text = arena_array(im->a, const char *,
                                model->n_metadata_props + graph->n_value_info + graph->n_input);
  // nnaot-export's metadata wins over that of PyTorch's exporter.
  for (size_t i = 0; i < model->n_metadata_props; i++) {
    const char *key = onnx_str(model->metadata_props[i]->key);
    if (str_starts(key, prefix))
      add_origin(im, key + strlen(prefix), onnx_str(model->metadata_props[i]->value));
  }
  for (size_t i = 0; i < graph->n_value_info + graph->n_input; i++) {
    const Onnx__ValueInfoProto *v =
        i < graph->n_input ? graph->input[i] : graph->value_info[i - graph->n_input];
    add_origin(im, onnx_str(v->name), onnx_str(v->doc_string));
  }
}

static const char *origin_of(const Import *im, const char *name) {
  int i = name_map_find(&im->origins, name);
  return i < 0 ? "" : im->origin_text[i];
}

// Returns the metadata of a weight; "" for any other value.
static const char *origin_of_weight(const Import *im, const Value *v) {
  return v && !v->def && v->role == ROLE_weight ? origin_of(im, v->label) : "";
}

bool node_padding_row(const Node *n, const Value *table, int64_t *row) {
  const char *at = strstr(origin_of_weight(n->im, table), " padding_idx=");
  if (at) *row = strtoll(at + strlen(" padding_idx="), NULL, 10);
  return at != NULL;
}

bool node_of_embedding(const Node *n, const Value *table) {
  return strstr(origin_of_weight(n->im, table), " embedding") != NULL;
}

// Whether the name is val_ and a number: from PyTorch's exporter (dynamo=True).
static bool is_numbered(const char *name, size_t n) {
  return str_starts(name, "val_") && 4 + strspn(name + 4, "0123456789") == n;
}

// Whether the list ['a', 'b'] has a name that is not numbered.
static bool has_named_source(const char *list) {
  for (const char *at = strchr(list, '\''); at; at = strchr(at, '\'')) {
    const char *name = at + 1, *end = strchr(name, '\'');
    if (!end) return false;
    // Numbered values are intermediate results.
    if (!is_numbered(name, (size_t)(end - name))) return true;
    at = end + 1;
  }
  return false;
}

static OnnxWhy by_metadata(const Import *im, const char *name, int ndim) {
  const char *text = origin_of(im, name);
  if (str_starts(text, "PARAMETER")) return WHY_parameter;
  if (str_starts(text, "FROZEN")) return WHY_frozen;
  if (str_starts(text, "CONSTANT")) return WHY_number;
  if (*text && *text != ':') return WHY_buffer;
  if (has_named_source(text)) return WHY_folded;
  // A fusion of parameters (a convolution and its normalisation) has a name like theirs.
  return ndim == 0 || is_numbered(name, strlen(name)) ? WHY_number : WHY_folded;
}

// -- Names and values ----------------------------------------------------------------------------

// PyTorch's names of parameters are words with dots between them.  TensorFlow's have slashes and
// colons, as do those of its constants, but a variable is read.
bool onnx_is_made_up(const char *name) {
  if (strstr(name, "ReadVariableOp")) return false;
  return strpbrk(name, "/:") || is_numbered(name, strlen(name)) ||
         name[strspn(name, "0123456789")] == '\0' || str_starts(name, "const_") ||
         str_starts(name, "Constant_");
}

// Whether all elements are finite in the compute type.
static bool is_finite(Import *im, const OnnxTensor *t, const Loc *loc) {
  double most = im->o->keep_f64 || t->dtype != DT_f64 ? INFINITY : FLT_MAX;
  if (t->bytes > MAX_READ_BYTES || im->file->unread) return true;
  const Type *type = type_new(im->m, t->dtype, t->ndim, t->dim);
  Arena *a = arena_new();
  Tensor tensor;
  // Unreadable bytes are reported when the tensor is used.
  bool finite = true, quiet = diag_quiet(im->d, true);
  if (onnx_tensor_load(im->file, t, type, a, loc, &tensor, im->d))
    for (int64_t i = 0; i < t->count && finite; i++)
      finite = fabs(tensor_f(&tensor, i)) < most;
  diag_quiet(im->d, quiet);
  arena_free(a);
  return finite;
}

OnnxWhy onnx_why(Import *im, const char *name, const OnnxTensor *t, const Loc *loc) {
  if (t->narrow) return WHY_narrow;
  if (dtype_class[t->dtype] != 'F') return WHY_integer;
  // Of the globs of --train that match, the last one decides.
  bool asked = false;
  for (int i = 0; i < im->o->n_weights; i++) {
    const char *glob = im->o->weights[i];
    if (str_row_glob(glob)) continue; // rows of a weight
    bool train = *glob == '!';
    if (str_glob(glob + train, name)) asked = train;
  }
  if (asked) return WHY_asked;
  // Facts of the exporter come before guesses by name and value.
  if (im->has_origins) return by_metadata(im, name, t->ndim);
  if (!is_finite(im, t, loc)) return WHY_not_finite;
  // tf2onnx gives a number of the program the dimensions of its other operand: [1,1,1].
  if ((t->ndim > 1 && !str_starts(name, "const_fold_opt__")) || t->count != 1) return WHY_plain;
  if (onnx_is_made_up(name)) return WHY_made_up;
  return t->ndim == 0 ? WHY_scalar : WHY_plain;
}

bool onnx_is_constant(OnnxWhy why, const OnnxTensor *t) {
  return reasons[why].constant && (t->bytes <= MAX_CONSTANT_BYTES || why == WHY_narrow);
}

// -- Readers -------------------------------------------------------------------------------------

static OnnxWhy *why_of(Import *im, const Value *v) {
  while (im->why.n <= (int)v->id)
    vec_push(im->a, &im->why, WHY_plain);
  return &im->why.at[v->id];
}

OnnxWhy onnx_why_of(const Import *im, const Value *v) {
  return (int)v->id < im->why.n ? im->why.at[v->id] : WHY_plain;
}

void onnx_decide(Import *im, Value *v, OnnxWhy why) {
  *why_of(im, v) = why;
  v->train = reasons[why].trained;
}

void onnx_keep(Import *im, Value *v, OnnxWhy why) {
  if (!v || v->def || v->role != ROLE_weight || !v->train) return;
  OnnxWhy was = *why_of(im, v);
  if (was == WHY_plain || was == WHY_scalar || (was == WHY_parameter && why == WHY_statistic) ||
      (was == WHY_folded && why == WHY_state))
    onnx_decide(im, v, why);
}

// Returns the weight that the value is a reshaped, transposed, broadcast or cast copy of; or NULL.
static Value *weight_behind(Value *v) {
  while (v->def && (v->def->kind == OP_broadcast || v->def->kind == OP_reshape ||
                    v->def->kind == OP_cast || v->def->kind == OP_transpose))
    v = v->def->in[0].value;
  return !v->def && v->role == ROLE_weight ? v : NULL;
}

// Keeps mean and std of (x - mean) / std, with x an input that is an image.
static void keep_image_scales(Import *im, const Value *x, int64_t channels, int depth) {
  enum { DEEPEST = 16 };
  for_each_use(u, x) {
    Op *op = u->user;
    if (!op || depth == DEEPEST) continue;
    // Operations that keep the channels, or change each element alike.
    bool moves = op->kind == OP_cast || op->kind == OP_transpose || op->kind == OP_reshape ||
                 op->kind == OP_scale || op->kind == OP_offset;
    bool scales =
        op->kind == OP_sub || op->kind == OP_add || op->kind == OP_mul || op->kind == OP_div;
    if (!moves && !scales) continue;
    Value *w = scales ? weight_behind(op->in[1 - u->index].value) : NULL;
    // One number per channel, or one for all.
    int64_t count = w ? type_count(w->type) : 0;
    if (scales && count != channels && count != 1) continue;
    if (w) onnx_keep(im, w, WHY_image);
    keep_image_scales(im, op->out[0], channels, depth + 1);
  }
}

// -- Warnings and reasons ------------------------------------------------------------------------

void onnx_classify_weights(Import *im) {
  // sqrt(x + eps): an epsilon is a constant of the program, also as an initializer.
  for_each_op(op, im->g) {
    if (op->kind != OP_sqrt && op->kind != OP_rsqrt) continue;
    const Op *add = op->in[0].value->def;
    for (int i = 0; add && add->kind == OP_add && i < 2; i++) {
      Value *w = weight_behind(add->in[i].value);
      if (w && type_count(w->type) == 1) onnx_keep(im, w, WHY_epsilon);
    }
  }
  // The channels of an image are dimension 1 or dimension 3.
  for (int i = 0; i < im->g->n_params; i++) {
    const Value *x = im->g->params[i];
    if (x->role != ROLE_input || x->type->ndim != 4) continue;
    keep_image_scales(im, x, x->type->dim[1], 0);
    keep_image_scales(im, x, x->type->dim[3], 0);
  }
  onnx_warn_of_ties(im);
  // A transposed copy trains as its source does; looked-up rows, or one parameter folded into two
  // weights, do not.
  int n = 0;
  const char *first = NULL;
  for (int i = 0; i < im->g->n_params; i++) {
    const Value *v = im->g->params[i];
    if (v->role == ROLE_weight && onnx_why_of(im, v) == WHY_folded && !n++) first = v->label;
  }
  if (n) {
    diag_doubt(im->d, PROBLEM_derived, onnx_place(im->file, im->a, first),
               "%d weight%s computed by the exporter from parameters; training %s may differ "
               "from training those",
               n, n == 1 ? " holds" : "s, this one the first, hold", n == 1 ? "it" : "them");
    diag_hint(im->d, "export as the model trains, without folding: torch.onnx.export(..., "
                     "optimize=False)");
  }
  // Every weight with its reason, for -v.
  OnnxFindings *out = im->o->findings;
  if (!out) return;
  out->weights = arena_array(out->arena, OnnxWeight, im->g->n_params + 1);
  for (int i = 0; i < im->g->n_params; i++) {
    const Value *v = im->g->params[i];
    if (v->role != ROLE_weight) continue;
    const Reason *why = &reasons[onnx_why_of(im, v)];
    out->weights[out->n_weights++] =
        (OnnxWeight){str_copy(out->arena, v->label), why->text, why->doubtful, v->train};
  }
}
