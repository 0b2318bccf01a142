// Programs for CPUs: kernels in C, and oneDNN.
//
// The executable finds libdnnl beside itself, in lib/ beside itself, or at its location at build
// time (search_path.c).
//
// Another kind of processor than this machine's, cpu:aarch64, has archives of its own, of our own
// kernels alone, and a compiler: aarch64-linux-gnu-gcc (rt/cross.cmake).

#include <string.h>

#include "kernels.h"
#include "target.h"

#if defined(__x86_64__)
#define HOST "x86_64"
#elif defined(__aarch64__)
#define HOST "aarch64"
#else
#define HOST ""
#endif

static const char *const processors[] = {"x86_64", "aarch64"};
enum { N_PROCESSORS = sizeof processors / sizeof *processors };

bool processor_parse(const char *text, const char **out, Diag *d) {
  for (int i = 0; i < N_PROCESSORS; i++) {
    if (!str_equal(processors[i], text)) continue;
    *out = str_equal(text, HOST) ? NULL : processors[i];
    return true;
  }
  diag_error(d, NULL, "--target: there is no kind of processor '%s'", text);
  Arena *a = arena_new();
  StrBuf names = {.arena = a};
  for (int i = 0; i < N_PROCESSORS; i++)
    strbuf_addf(&names, "%scpu:%s", i ? ", " : "", processors[i]);
  diag_hint(d, "there are: %s", names.at);
  arena_free(a);
  return false;
}

static void fused(Program *p, const Graph *body, const char *name) {
  kernel_emit_cpu(p->kernels, body, name);
  strbuf_addf(&p->declarations, "%s;\n", kernel_declaration(p->arena, body, name));
}

// The folder of oneDNN; NULL: kernels are our own alone.
static const char *dnnl_folder(const Build *b) {
  if (b->o->target.processor || !*NNAOT_DNNL_DIR) return NULL;
  return b->installed ? b->libraries : NNAOT_DNNL_DIR;
}

// The archive of the runtime, "libnnrt", or of kernels, "libnnrt_cpu".
static const char *archive(const Build *b, const char *name) {
  const char *processor = b->o->target.processor;
  return str_format(b->arena, "%s/%s%s%s.a", b->libraries, name, processor ? "_" : "",
                    processor ? processor : "");
}

// Whether compiler and archives of another kind of processor are here.
static bool can_cross(Build *b) {
  const char *processor = b->o->target.processor, *variable;
  const char *cc = build_c_compiler(b->arena, b->o, &variable);
  // $CC_aarch64 may have options.
  const char *program = str_copy_n(b->arena, cc, strcspn(cc, " "));
  if (!(strchr(program, '/') ? is_program(program) : program_on_path(b->arena, program) != NULL)) {
    diag_error(b->d, NULL, "cannot find the C compiler '%s' of --target cpu:%s", program,
               processor);
    diag_hint(b->d, "install it (Debian: " NNAOT_CROSS_PACKAGES "), or name one in %s", variable);
    return false;
  }
  const char *ours = archive_headers(b->arena, str_format(b->arena, "%s/libnnrt.a", b->libraries));
  const char *path = archive(b, "libnnrt"), *its = archive_headers(b->arena, path);
  // An archive with other headers than libnnrt.a is of another version.
  if (its && ours && str_equal(its, ours)) return true;
  if (!its)
    diag_error(b->d, NULL, "the runtime for %s is not built: there is no '%s'", processor, path);
  else
    diag_error(b->d, NULL, "'%s' is not of the same version as this nnaot", path);
  diag_hint(b->d, "`" NNAOT_MAKE_CROSS "` builds it%s", processor,
            b->installed ? "; then install nnaot again" : "");
  return false;
}

static Readiness ready(Build *b, BackendOptions *o) {
  o->link = LINK_shared;
  if (!build_find_runtime(b)) return READY_no;
  // Sources can be written without a compiler and an archive.
  if (o->target.processor && !o->only_sources && !can_cross(b)) return READY_no;
  const char *dnnl = dnnl_folder(b);
  search_path(b->arena, o, &dnnl, dnnl != NULL, b->d); // warns
  return READY_yes;
}

static void commands(Build *b, Commands *out) {
  const char *dnnl = dnnl_folder(b);
  build_c_compile(b, "-O3", out);
  Command c = build_c_command(b);
  build_c_objects(b, &c);
  command_adds(&c, "-o program -pie -Wl,-z,relro,-z,now -Wl,--start-group");
  command_add(&c, archive(b, "libnnrt"));
  command_add(&c, archive(b, "libnnrt_cpu"));
  command_adds(&c, "-Wl,--end-group");
  if (dnnl) {
    command_add(&c, str_format(b->arena, "-L%s", dnnl));
    command_add(&c, "-ldnnl");
  }
  command_adds(&c, "-lm -lpthread -ldl");
  command_add(&c, str_format(b->arena, "-Wl,-rpath,%s",
                             search_path(b->arena, b->o, &dnnl, dnnl != NULL, NULL)));
  vec_push(b->arena, &out->at, c);
}

static bool finish(Build *b) {
  (void)b;
  return true;
}

const TargetBackend target_cpu = {
    "[:x86_64|:aarch64]", NULL, "", fused, NULL, NULL, ready, commands, finish};
