// What the files that read multi-device annotations share: onnx_devices.c, what each node says;
// onnx_grid.c, which axes the devices of all of them form.

#ifndef FRONTEND_ONNX_DEVICES_H
#define FRONTEND_ONNX_DEVICES_H

#include "frontend/onnx_walk.h"
#include "ir/annotations.h"

// How a tensor lies, as one node has it.
typedef struct Sharding {
  const char *tensor, *value; // of the model; of the module
  bool result;
  int n_devices;
  int *device; // upwards
  int *shard;  // which of them device[i] has: a number whose digits are the parts of `cut`
  int n_cuts;
  struct {
    int dim, parts;
  } cut[MAX_RANK]; // the first is the slowest digit
} Sharding;

typedef struct AnnotatedNode {
  const Loc *loc;
  int64_t stage; // as the model has it; -1: none
  Vec(Sharding) shardings;
} AnnotatedNode;

typedef struct Devices {
  const char *configuration;
  int n;
  NameMap ids;                // of all configurations
  Vec(AnnotatedNode *) nodes; // in the order of import
  Vec(int64_t) stage;         // by value id: the latest that it needs, and 1 more; 0: none
  NameMap symbol_names;       // of dimensions of the inputs, to `symbol_size`
  Vec(int64_t) symbol_size;
  bool failed; // something was reported
} Devices;

// The parts of all nodes as those of one grid, in the module.  False, having reported why.
bool onnx_grid(Import *im, Devices *devices);

#endif
