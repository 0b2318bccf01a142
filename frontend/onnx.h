// ONNX in and out.

#ifndef FRONTEND_ONNX_H
#define FRONTEND_ONNX_H

#include "ir/annotations.h"

// Why a weight is trained, or why it is not.
typedef struct OnnxWeight {
  const char *label, *reason; // "PyTorch calls it a buffer"
  bool doubtful;              // it may be otherwise
} OnnxWeight;

// Findings in a model that its user should hear of before training it.
typedef struct OnnxFindings {
  Arena *arena; // the caller's, of the members below
  OnnxWeight *weights;
  int n_weights;
  // BatchNormalization as in inference, where nothing says that this is meant: how many, and where
  // the first one is.
  int n_batch_norms;
  const Loc *batch_norm;
} OnnxFindings;

typedef struct OnnxOptions {
  int64_t batch;         // 0: not given
  const char *batch_dim; // NULL: the dim_param shared by all inputs' axis 0, else axis 0
  // Data has its rows in dimension 0: an input or output with the batch in another one gets that
  // first, and the model a transpose.
  bool rows_first;
  const char *const *dims; // "NAME=VALUE", n_dims of them
  int n_dims;
  const char *external_data_dir; // one more folder external data may lie in, or NULL
  bool keep_f64;                 // leave f64, f16 and bf16 as they are; otherwise they become f32
  bool train_mode;               // Dropout and BatchNormalization as in training
  bool unread;                   // nobody reads weights: files of external data may be missing
  // Multi-device annotations for so many devices become those of the module, if there are any; 0:
  // they are not looked at.
  int64_t devices;
  bool *annotated; // whether it has any, for any number of devices; or NULL
  // Globs of names, of which the last that matches counts: "w*" is kept, "!w*" is trained whatever
  // the model says.
  const char *const *weights;
  int n_weights;
  OnnxFindings *findings; // or NULL
  // Files of TensorProtos, one for each input in order, or NULL: what inputs that are constant in
  // practice will hold.  Where an op must know at compile time what is computed from them (axes, a
  // shape, a condition), it is taken from here.  They stay inputs.
  const char *const *hints;
  int n_hints;
} OnnxOptions;

// Reads the model into a module in PHASE_typed with one entry graph @main: inputs, weights, and an
// output per ONNX output.  Everything that cannot be compiled is reported in one run, grouped by
// cause.  Returns NULL when anything was.
Module *onnx_import(const char *path, const OnnxOptions *o, Diag *d);
// What a tensor of the file is called in the module.
const char *onnx_value_name(Arena *a, const char *name);

// The first node of the model that takes in what is called `name`, a node or a value of its graph,
// and of which `lasts` says that it is still there; NULL: none.  *known: whether the model has the
// name.
typedef bool OnnxLasts(const void *of, const char *node);
const char *onnx_follow(const char *path, const char *name, OnnxLasts *lasts, const void *of,
                        Arena *a, bool *known);

// The bytes of the model with every initializer in `labels` given as raw data inline, and where
// each one's data lies: what the executable needs for --export.  Nothing, with a warning, above 2
// GiB.
typedef struct OnnxHole {
  const char *label;
  DType dtype;            // of the file
  int64_t offset, length; // in the skeleton
} OnnxHole;
typedef struct OnnxSkeleton {
  uint8_t *bytes; // holes are zero
  int64_t n;
  OnnxHole *holes;
  int n_holes;
} OnnxSkeleton;
// Of the labels the first `n_must` have to be initializers of the graph; others that are none, as
// those of a branch, have no hole.
bool onnx_skeleton(const char *path, const OnnxOptions *o, const char *const *labels, int n_labels,
                   int n_must, Arena *a, OnnxSkeleton *out, Diag *d);

// The bytes of the model with these annotations instead of those that it has.  They are about to be
// written to the file `to`; weights in other files stay there.
bool onnx_annotate(const char *path, const Annotations *all, const char *to, Arena *a,
                   const uint8_t **bytes, int64_t *n, Diag *d);

#endif
