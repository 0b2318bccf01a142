// What an initializer is: a weight to be trained, something to be kept, or a constant.
//
// An ONNX file does not say, so every floating-point initializer is a weight.  PyTorch's exporter
// (dynamo=True) also makes initializers of buffers and of the numbers in the program, such as the
// 0.5 of a GELU, which PyTorch does not train; but it says which is which, in the metadata of the
// value:
//
//     fc.weight   InputSpec.kind PARAMETER              trained
//     freqs       InputSpec.kind BUFFER                 kept: saved, not trained
//     val_9       folded_from ['fc.weight']             trained: its transpose, say; with a warning
//     val_33      nothing, or folded_from ['val_13']    a number of the program: a constant
//
// Only a model in which some value is a PARAMETER is read so.

#include <string.h>

#include "frontend/onnx_walk.h"

void onnx_read_origins(Import *im) {
  const Onnx__GraphProto *graph = onnx_model(im->file)->graph;
  im->origins = (NameMap){.arena = im->a};
  im->origin_text = arena_array(im->a, const char *, graph->n_value_info + graph->n_input);
  for (size_t i = 0; i < graph->n_value_info + graph->n_input; i++) {
    const Onnx__ValueInfoProto *v =
        i < graph->n_input ? graph->input[i] : graph->value_info[i - graph->n_input];
    im->origin_text[i] = onnx_str(v->doc_string);
    name_map_add(&im->origins, onnx_str(v->name), (int)i);
    im->has_origins = im->has_origins || str_starts(im->origin_text[i], "PARAMETER");
  }
}

// val_ and a number: a name the exporter made up.
static bool is_made_up(const char *name, size_t n) {
  return str_starts(name, "val_") && 4 + strspn(name + 4, "0123456789") == n;
}

// Is there a name in the list ['a', 'b'] that is not?
static bool has_named_source(const char *list) {
  for (const char *at = strchr(list, '\''); at; at = strchr(at, '\'')) {
    const char *name = at + 1, *end = strchr(name, '\'');
    if (!end) return false;
    if (!is_made_up(name, (size_t)(end - name))) return true;
    at = end + 1;
  }
  return false;
}

OnnxOrigin onnx_origin(const Import *im, const char *name, int rank) {
  if (!im->has_origins) return ORIGIN_trained;
  int i = name_map_find(&im->origins, name);
  const char *text = i < 0 ? "" : im->origin_text[i];
  if (str_starts(text, "PARAMETER")) return ORIGIN_trained;
  if (*text && *text != ':') return ORIGIN_kept;
  if (has_named_source(text)) return ORIGIN_folded;
  // What a fusion made of parameters (a convolution and its normalisation) has a name like theirs.
  return rank == 0 || is_made_up(name, strlen(name)) ? ORIGIN_constant : ORIGIN_folded;
}

// A transpose trains as its source does; rows that were looked up, or one parameter folded into
// two weights, do not.
void onnx_warn_of_folded(Import *im) {
  if (!im->n_folded) return;
  diag_warning(im->d, onnx_place(im->file, im->a, im->folded),
               "%d weight%s, '%s' the first, hold%s what the exporter computed from parameters; "
               "training them may differ from training those",
               im->n_folded, im->n_folded == 1 ? "" : "s", im->folded,
               im->n_folded == 1 ? "s" : "");
  diag_hint(im->d, "export as the model trains, without folding: torch.onnx.export(..., "
                   "optimize=False)");
}
