// Nodes of a model as in inference.

#ifndef FRONTEND_ONNX_INFERENCE_H
#define FRONTEND_ONNX_INFERENCE_H

#include "frontend/onnx_names.h"
#include "frontend/onnx_wire.h"

#include "onnx.pb-c.h"

typedef struct InferenceWriter {
  const uint8_t *file;
  WireWriter *to;
  NameMap reads; // names of results that a node or a graph of the model reads
} InferenceWriter;

void inference_reads(InferenceWriter *w, const Onnx__ModelProto *model);
// Writes the node in `field` of the file, as field `number` of the message being written.
void inference_put_node(InferenceWriter *w, int number, const WireField *field,
                        const Onnx__NodeProto *node);

#endif
