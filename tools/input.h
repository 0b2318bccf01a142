// Input of nnaot-opt and nnaot-eval: a model (.onnx), with the options of its import, or a module
// in text form (.nn; "-" is standard input).

#ifndef TOOLS_INPUT_H
#define TOOLS_INPUT_H

#include "frontend/onnx.h"
#include "options.h"

typedef struct InputOptions {
  int64_t batch, devices;
  const char *batch_dim, *external_data_dir;
  Strings dims, bounds;
  OnnxCounts *counts; // or NULL
  bool keep_types, train_mode;
} InputOptions;

// Rows of a program's table of options.
#define INPUT_OPTIONS(o)                                                                           \
  GROUP("Import of .onnx files"),                                                                  \
      INTEGER("batch", 0, &(o).batch, "B", "the batch size; 0: as in the model"),                  \
      STRING("batch-dim", 0, &(o).batch_dim, "NAME", "the symbolic dimension that is the batch"),  \
      LIST("dim", 0, &(o).dims, "NAME=VALUE", "the size of another symbolic dimension"),           \
      LIST("bound", 0, &(o).bounds, "NAME=N",                                                      \
           "the bound of a length that depends on data, of a node or a result"),                   \
      STRING("external-data-dir", 0, &(o).external_data_dir, "DIR",                                \
             "one more folder that external data may lie in"),                                     \
      FLAG("keep-types", 0, &(o).keep_types,                                                       \
           "leave f64, f16 and bf16 as they are instead of f32"),                                  \
      FLAG("train-mode", 0, &(o).train_mode,                                                       \
           "Dropout and BatchNormalization behave as in training"),                                \
      INTEGER("devices", 0, &(o).devices, "N",                                                     \
              "keep the multi-device annotations for N devices; 0: none")

// Reads a module.  Returns NULL after an error, which it has reported.
Module *input_read(const char *path, const InputOptions *o, Diag *d);

#endif
