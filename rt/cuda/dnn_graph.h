// A graph under construction, by dnn.c, and during planning, by dnn_plan.c.
//
// A graph has a text as well, a line for each tensor and operation:
//
//     tensor 0 type 9 1:4096 64:64 64:1
//     tensor 0 type 9 1:4096 64:64 64:1
//     tensor 1 type 0 1:4096 64:64 64:1
//     matmul 1520=0 1521=1 1522=2
//
// The key of an ahead-of-time plan is the name of the kernel and the text's 64-bit hash.  If two
// graphs of one name had the same hash, one would run the other's plan; with 64 bits, and a few
// hundred graphs in a program, that does not happen by accident.

#ifndef NNRT_CUDA_DNN_GRAPH_H
#define NNRT_CUDA_DNN_GRAPH_H

#include "dnn.h"

enum { MAX_TENSORS = 64, MAX_OPS = 32, MAX_DESCRIPTORS = 192 };

typedef cudnnBackendDescriptor_t Descriptor;

// A number that dnn_run passes to the kernel by value.
typedef struct Number {
  int64_t uid;
  union {
    float f;
    int32_t i;
  } x;
} Number;

struct DnnGraph {
  char name[32];
  bool failed; // nnrt_error has the reason
  Descriptor made[MAX_DESCRIPTORS];
  int n_made;
  Descriptor tensor[MAX_TENSORS];
  int n_tensors;
  int64_t memory[MAX_TENSORS]; // uids of tensors in memory
  int n_memory;
  Number number[MAX_TENSORS];
  int n_numbers;
  Descriptor op[MAX_OPS];
  int n_ops;
  uint64_t distrusted; // engines, by their number
  uint64_t rounding;   // excluded without tensor cores
  char *text;
  size_t text_bytes, text_room;
};

// These do nothing once the graph has failed.
Descriptor dnn_make(DnnGraph *g, cudnnBackendDescriptorType_t type); // freed with the graph
void dnn_set(DnnGraph *g, Descriptor d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t n, const void *value);
void dnn_set_descriptor(DnnGraph *g, Descriptor d, cudnnBackendAttributeName_t name,
                        Descriptor value);
void dnn_finalize(DnnGraph *g, Descriptor d);
void dnn_check(DnnGraph *g, cudnnStatus_t status, const char *what);
void dnn_fail(DnnGraph *g, const char *what);

// Appends to the text.
__attribute__((format(printf, 2, 3))) void dnn_say(DnnGraph *g, const char *fmt, ...);

#endif
