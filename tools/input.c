// Input of nnaot-opt and nnaot-eval: see input.h.

#include "input.h"

Module *input_read(const char *path, const InputOptions *o, Diag *d) {
  if (!str_ends(path, ".onnx")) return module_read(path, d);
  OnnxOptions import = {.batch = o->batch,
                        .batch_dim = o->batch_dim,
                        .dims = o->dims.at,
                        .n_dims = o->dims.n,
                        .bounds = o->bounds.at,
                        .n_bounds = o->bounds.n,
                        .counts = o->counts,
                        .external_data_dir = o->external_data_dir,
                        .keep_f64 = o->keep_types,
                        .train_mode = o->train_mode,
                        .devices = o->devices};
  return onnx_import(path, &import, d);
}
