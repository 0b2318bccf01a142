// Multi-device annotations as read: onnx_devices.c reads those of each node; onnx_grid.c derives
// the axes of the devices from all of them.

#ifndef FRONTEND_ONNX_DEVICES_H
#define FRONTEND_ONNX_DEVICES_H

#include "frontend/onnx_walk.h"
#include "ir/annotations.h"

// The layout of a tensor at one node.
typedef struct Sharding {
  const char *tensor, *value; // names in the model and in the module
  bool result;
  int n_devices;
  int *device; // ascending
  int *shard;  // shard of device[i]: a number with the parts of `cut` as digits
  int n_cuts;
  struct {
    int dim, parts;
  } cut[MAX_NDIM]; // the first is the slowest digit
} Sharding;

typedef struct AnnotatedNode {
  const Loc *loc;
  int64_t stage; // in the model; -1: none
  Vec(Sharding) shardings;
} AnnotatedNode;

typedef struct Devices {
  const char *configuration;
  int n;
  NameMap ids;                // of all configurations
  Vec(AnnotatedNode *) nodes; // in the order of import
  Vec(int64_t) stage;         // by value id: 1 + the latest stage that it depends on; 0: none
  NameMap symbol_names;       // of dimensions of the inputs, to `symbol_size`
  Vec(int64_t) symbol_size;
  bool failed; // something was reported
} Devices;

// Converts the shards of all nodes to layouts on one grid, in the module.  False after a report.
bool onnx_grid(Import *im, Devices *devices);

#endif
