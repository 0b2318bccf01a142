// Programs for CPUs: kernels in C, and oneDNN.
//
// The executable finds libdnnl beside itself, in lib/ beside itself, or at its location at build
// time (search_path.c).

#include "kernels.h"
#include "target.h"

static void fused(Program *p, const Graph *body, const char *name) {
  kernel_emit_cpu(p->kernels, body, name);
  strbuf_addf(&p->declarations, "%s;\n", kernel_declaration(p->arena, body, name));
}

static const char *dnnl_folder(const Build *b) {
  return b->installed ? b->libraries : NNAOT_DNNL_DIR;
}

static Readiness ready(Build *b, BackendOptions *o) {
  o->link = LINK_shared;
  if (!build_find_runtime(b)) return READY_no;
  const char *dnnl = dnnl_folder(b);
  search_path(b->arena, o, &dnnl, 1, b->d); // warns
  return READY_yes;
}

static void commands(Build *b, Commands *out) {
  const char *dnnl = dnnl_folder(b);
  build_c_compile(b, "-O3", out);
  Command c = build_c_command(b);
  build_c_objects(b, &c);
  command_adds(&c, "-o program -pie -Wl,-z,relro,-z,now -Wl,--start-group");
  command_add(&c, str_format(b->arena, "%s/libnnrt.a", b->libraries));
  command_add(&c, str_format(b->arena, "%s/libnnrt_cpu.a", b->libraries));
  command_adds(&c, "-Wl,--end-group");
  command_add(&c, str_format(b->arena, "-L%s", dnnl));
  command_adds(&c, "-ldnnl -lm -lpthread -ldl");
  command_add(&c,
              str_format(b->arena, "-Wl,-rpath,%s", search_path(b->arena, b->o, &dnnl, 1, NULL)));
  vec_push(b->arena, &out->at, c);
}

static bool finish(Build *b) {
  (void)b;
  return true;
}

const TargetBackend target_cpu = {NULL, "", fused, NULL, NULL, ready, commands, finish};
