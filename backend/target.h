// The interface of a target of the backend, one file each: target_cpu.c, target_cuda.c.
//
// emit.c, calls.c and tables.c write the same program.c for all targets; build.c runs their
// commands. A new target: README.md, Targets.

#ifndef BACKEND_TARGET_H
#define BACKEND_TARGET_H

#include "build.h"
#include "program.h"

typedef struct TargetBackend {
  const char *choices;       // after the name, in messages: "[:sm_XX[,sm_YY…]]"
  const char *architectures; // default of the bare name; NULL: kinds of processors (target_cpu.c)
  const char *options;       // options of nnaot that only some targets take: "link aot-plans"
  // Adds the kernel of a fused body to p->kernels, or to p->device with a declaration.
  void (*fused)(Program *p, const Graph *body, const char *name);
  const char *source; // of kernels, beside program.c: "kernels.cu"; NULL: none
  void (*source_text)(const Program *p, StrBuf *out);
  // The answer of backend_ready.
  Readiness (*ready)(Build *b, BackendOptions *o);
  // The commands that make `program` of the sources.
  void (*commands)(Build *b, Commands *out);
  // Finishes the linked program: appends to the file `plans`.
  bool (*finish)(Build *b);
} TargetBackend;

#define TARGET(name, pipeline, align, cluster, multi_tensor, gpu, eager_sends, async_comm,         \
               recorded, half)                                                                     \
  extern const TargetBackend target_##name;
#include "ir/targets.def"
const TargetBackend *target_backend(Target t);

// -- target_cpu.c

// Reads a kind of processor.  Returns false, having reported it, if there is none of this name.
bool processor_parse(const char *text, const char **out, Diag *d);

#endif
