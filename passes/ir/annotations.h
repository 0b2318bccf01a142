// The multi-device annotations of an ONNX model, as text.
//
//     module "mlp.onnx" phase=typed
//     annotations "dp=2,tp=2" (d0=2, d1=2)
//     node "/fc1/MatMul" in %x {S(0), B}, %fc1.w {B, S(1)} out %h {S(0), S(1)}
//     node "/fc2/MatMul" in %h {S(0), S(1)}, %fc2.w {B, S(0)}
//
// The first line has the axes of the devices, outermost first.  The axis named by `stages`, if any,
// is the pipeline axis: each node is on one of its devices.  A node is identified by its name in
// the model, which is in the locations of its ops, and a value by its name.  Along every axis a
// value is replicated or sharded along a dimension: B or S.
//
// Passes may have replaced the annotated ops, so annotations hold no pointers to ops or values, and
// neither need still exist.  annotated.c in passes applies them.

#ifndef IR_ANNOTATIONS_H
#define IR_ANNOTATIONS_H

#include "ir/graph.h"

typedef struct AnnotatedValue {
  const char *name;
  bool result;
  Sbp axis[MAX_AXES];
} AnnotatedValue;

typedef struct Annotation {
  const char *node;
  int stage; // -1: unspecified
  int n_values;
  AnnotatedValue *value; // operands first
  struct Annotation *next;
} Annotation;

typedef struct Annotations {
  const char *name;   // the name of the configuration
  int n_axes, stages; // stages: the index of the pipeline axis; -1: none
  MeshAxis axis[MAX_AXES];
  Annotation *first, *last; // in the order of the model
} Annotations;

void annotations_add(Annotations *all, Annotation *one);
void annotations_print(StrBuf *b, const Annotations *all);
Annotations *annotations_clone(Arena *a, const Annotations *all); // NULL for NULL

struct Parser;
// Parses the text after the word `annotations` into the parser's module.
bool annotations_parse(struct Parser *p);

#endif
