// What a model says of the devices it is to run on: ONNX's multi-device annotations, as text.
//
//     module "mlp.onnx" phase=typed
//     annotations "dp=2,tp=2" (d0=2, d1=2)
//     node "/fc1/MatMul" in %x {S(0), B}, %fc1.w {B, S(1)} out %h {S(0), S(1)}
//     node "/fc2/MatMul" in %h {S(0), S(1)}, %fc2.w {B, S(0)}
//
// The first line has the axes that the devices form, outermost first; along the one that `stages`
// names, if any, nodes are on one device after the other.  A node is one of the model, as the
// location of its ops has it, and so are the values, by their names.  Along every axis a value is
// whole, or a slice of a dimension: B or S.
//
// They are wishes about ops that passes may have put others in place of, so nothing here points at
// an op or a value, and neither has to be there any more.  annotated.c in passes does what they
// say.

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
  int stage; // -1: not said
  int n_values;
  AnnotatedValue *value; // operands first
  struct Annotation *next;
} Annotation;

typedef struct Annotations {
  const char *name;   // of the configuration
  int n_axes, stages; // which of them has the stages; -1: none
  MeshAxis axis[MAX_AXES];
  Annotation *first, *last; // in the order of the model
} Annotations;

void annotations_add(Annotations *all, Annotation *one);
void annotations_print(StrBuf *b, const Annotations *all);
Annotations *annotations_clone(Arena *a, const Annotations *all); // of NULL: NULL

struct Parser;
// From behind the word `annotations` on, into the parser's module.
bool annotations_parse(struct Parser *p);

#endif
