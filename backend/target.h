// What differs between the targets of the backend, one file each: target_cpu.c, target_cuda.c.
//
// emit.c, calls.c and tables.c write the same program.c for all of them; build.c runs what they
// say.  A new target is a third such file, a column in ops.def and a row of target_info (ir/op.c).

#ifndef BACKEND_TARGET_H
#define BACKEND_TARGET_H

#include "build.h"
#include "program.h"

typedef struct TargetBackend {
  const char *architectures; // those of the bare name; NULL: there are none to choose from
  const char *options;       // of nnaot's, those that it takes and others do not: "link aot-plans"
  // Writes the kernel of a fused body into p->kernels, or only its declaration there and the
  // kernel into p->device.
  void (*fused)(Program *p, const Graph *body, const char *name);
  // Writes the files besides those that every program has.
  bool (*files)(const Program *p, const char *dir);
  // What backend_ready says.
  Readiness (*ready)(Build *b, BackendOptions *o);
  // The commands that make `program` of the sources.
  void (*commands)(Build *b, Commands *out);
  // What the linked program has to do before it is done: appends to the file `plans`.
  bool (*finish)(Build *b);
} TargetBackend;

extern const TargetBackend target_cpu, target_cuda;
const TargetBackend *target_backend(Target t);

#endif
