// Programs for gpus: fused kernels in CUDA C, cuBLASLt, cuDNN, NCCL.
//
//     cc -c program.c
//     nvcc -gencode … -c kernels.cu
//     nvcc program.o kernels.o libnnrt.a libnnrt_cuda_sm_90.a -lcublasLt -lcudnn -lnccl -o program
//
// nvcc is $NVCC, the one nnaot was built with, or the one in the PATH.  Kernels are compiled for
// each architecture of the target, and for the newest also as PTX, which later gpus can take.  The
// runtime's kernels are in an archive for each architecture, and in one with all of them.  The CUDA
// runtime is linked statically, and so are the libraries if there are archives of them.  Otherwise
// the executable finds them beside itself, in lib/ beside itself, or at their location at build
// time.

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cudnn_plans.h"
#include "kernels.h"
#include "target.h"

// -- Sources -----------------------------------------------------------------------------------

static void fused(Program *p, const Graph *body, const char *name) {
  strbuf_addf(&p->declarations, "%s;\n", kernel_declaration(p->arena, body, name));
  kernel_emit_cuda(&p->device, body, name);
}

static void source_text(const Program *p, StrBuf *out) {
  strbuf_add(out, "// Fused kernels of program.c.  Made by nnaot; edits are lost.\n\n"
                  "#include \"cuda/fused.cuh\"\n");
  if (p->device.n) strbuf_addf(out, "\n%s", p->device.at);
}

// -- Tools and libraries of this machine -------------------------------------------------------

static const char *find_nvcc(Arena *a) {
  const char *nvcc = getenv("NVCC");
  if (nvcc && *nvcc) return strchr(nvcc, '/') ? nvcc : program_on_path(a, nvcc);
  return is_program(NNAOT_NVCC) ? NNAOT_NVCC : program_on_path(a, "nvcc");
}

typedef Vec(const char *) Folders;

static void add_folder(Arena *a, Folders *f, const char *path) {
  char real[PATH_MAX];
  if (!realpath(path, real)) return;
  for (int i = 0; i < f->n; i++)
    if (str_equal(f->at[i], real)) return;
  vec_push(a, f, str_copy(a, real));
}

// Folders of the libraries: those of the toolkit that nvcc belongs to, then those of the build.
static Folders library_folders(Arena *a, const char *nvcc) {
  static const char *const of_toolkit[] = {"lib64", "lib", "targets/x86_64-linux/lib"};
  Folders f = {0};
  char real[PATH_MAX];
  // nvcc may be a link into the toolkit.
  char *bin = nvcc && realpath(nvcc, real) ? strrchr(real, '/') : NULL;
  if (bin) *bin = 0;
  for (size_t i = 0; bin && i < sizeof of_toolkit / sizeof *of_toolkit; i++)
    add_folder(a, &f, str_format(a, "%s/../%s", real, of_toolkit[i]));
  const char *list = NNAOT_CUDA_FOLDERS, *folder;
  while ((folder = next_folder(a, &list)))
    add_folder(a, &f, folder);
  return f;
}

static const char *find_in(Arena *a, const Folders *f, const char *name) {
  for (int i = 0; i < f->n; i++) {
    const char *path = str_format(a, "%s/%s", f->at[i], name);
    if (is_file(path)) return path;
  }
  return NULL;
}

static const char *const shared[] = {"cublasLt", "cudnn", "nccl"};
enum { N_SHARED = sizeof shared / sizeof *shared };

// Archives.  `whole`: link all of it although nothing refers to it: engines of cuDNN register in
// tables when they are loaded, and NCCL is used if it is present (nccl.c).
static const struct {
  const char *name;
  bool whole;
} archives[] = {
    {"libcudnn_graph_static.a", true},
    {"libcudnn_engines_precompiled_static.a", true},
    {"libcudnn_engines_runtime_compiled_static.a", true},
    {"libcudnn_heuristic_static.a", true},
    {"libcudnn_ops_static.a", false},
    {"libnccl_static.a", true},
    {"libcublasLt_static.a", false},
    {"libnvrtc_static.a", false},
    {"libnvrtc-builtins_static.a", false},
    {"libnvptxcompiler_static.a", false},
    {"libculibos.a", false},
};
enum { N_ARCHIVES = sizeof archives / sizeof *archives };

// The folders of the libraries that are linked shared.
static Folders shared_folders(Arena *a, const Folders *f) {
  Folders used = {0};
  for (int i = 0; i < N_SHARED; i++) {
    const char *path = find_in(a, f, str_format(a, "lib%s.so", shared[i]));
    if (path) add_folder(a, &used, str_copy_n(a, path, (size_t)(strrchr(path, '/') - path)));
  }
  return used;
}

static const char *folders_text(Arena *a, const Folders *f) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < f->n; i++)
    strbuf_addf(&b, "%s'%s'", i ? ", " : "", f->at[i]);
  return b.at ? b.at : "no folder";
}

// Chooses static or shared linking.
static bool choose_link(Build *b, BackendOptions *o, const Folders *f) {
  Arena *a = b->arena;
  // The names of missing archives, a line each, or NULL.
  StrBuf names = {.arena = a};
  for (int i = 0; i < N_ARCHIVES; i++)
    if (!find_in(a, f, archives[i].name)) strbuf_addf(&names, "\n  %s", archives[i].name);
  const char *missing = names.at;
  if (o->link == LINK_static && missing) {
    diag_error(b->d, NULL, "--link static: archives are missing:%s", missing);
    diag_hint(b->d, "looked for them in %s; --link shared needs none", folders_text(a, f));
    return false;
  }
  // Without --link, archives are linked if all are there.
  if (o->link == LINK_any) o->link = missing ? LINK_shared : LINK_static;
  if (o->link == LINK_static && o->rpath)
    return diag_error(b->d, NULL, "--rpath has no effect: the libraries are linked statically");
  if (o->link == LINK_static || o->only_sources) return true;
  for (int i = 0; i < N_SHARED; i++) {
    const char *name = str_format(a, "lib%s.so", shared[i]);
    if (!find_in(a, f, name))
      return diag_error(b->d, NULL, "the cuda target needs %s, which is not in %s", name,
                        folders_text(a, f));
  }
  Folders used = shared_folders(a, f);
  search_path(a, o, used.at, used.n, b->d); // warns
  return true;
}

// The architectures of `nvcc --list-gpu-code` that can compute in bf16, ascending; none if it
// prints none.
enum { OLDEST = 80 };

typedef Vec(int) Architectures;

static int compare_ints(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

static Architectures known_architectures(Arena *a, const char *nvcc) {
  Architectures known = {0};
  Command c = {.arena = a};
  command_add(&c, nvcc);
  command_add(&c, "--list-gpu-code");
  FILE *f = popen(command_text(&c), "r");
  char line[64];
  while (f && fgets(line, sizeof line, f)) {
    line[strcspn(line, "\r\n")] = 0;
    // Older architectures cannot compute in bf16.
    if (str_starts(line, "sm_") && atoi(line + 3) >= OLDEST) vec_push(a, &known, atoi(line + 3));
  }
  if (!f || pclose(f) != 0) known.n = 0;
  if (known.n) qsort(known.at, (size_t)known.n, sizeof *known.at, compare_ints);
  return known;
}

// -- The runtime's archive -----------------------------------------------------------------------
//
// libnnrt_cuda_sm_90.a and so on have the kernels of one architecture and their PTX; libnnrt_cuda.a
// has those of all, and the PTX of the newest.  The user chooses which of them are built.

// The architectures that archives can be built for, ascending; none if nnaot was built without
// cuda.
static const int built_for[] = {NNAOT_CUDA_ARCHITECTURES 0};
enum { N_BUILT_FOR = sizeof built_for / sizeof *built_for - 1 };

// The newest of built_for that is not newer than sm_`sm`, or 0.  A gpu of sm_`sm` runs its code if
// the major version is the same, or compiles its PTX.
static int kernels_for(int sm) {
  int best = 0;
  for (int i = 0; i < N_BUILT_FOR; i++)
    if (built_for[i] <= sm) best = built_for[i];
  return best;
}

static bool all_have(int sm) {
  int kernels = kernels_for(sm);
  return kernels && (kernels / 10 == sm / 10 || kernels == kernels_for(INT_MAX));
}

static const char *archive_of(const Build *b, int sm) {
  const char *folder = b->installed ? b->libraries : NNAOT_CUDA_ARCHIVES;
  return str_format(b->arena, "%s/libnnrt_cuda_sm_%d.a", folder, sm);
}

// An archive beside nvcc itself, as the emulator has one (tests/gpu/emulator), or NULL.
static const char *archive_of_nvcc(const Build *b, const char *nvcc) {
  char real[PATH_MAX];
  char *end = realpath(nvcc, real) ? strrchr(real, '/') : NULL;
  if (!end) return NULL;
  const char *path = str_format(b->arena, "%.*s/libnnrt_cuda.a", (int)(end - real), real);
  return is_file(path) ? path : NULL;
}

// The archive to link, which may be missing.
static const char *choose_archive(const Build *b, const char *nvcc) {
  const TargetSpec *t = &b->o->target;
  const char *own = archive_of_nvcc(b, nvcc);
  if (own) return own;
  // The archive of all architectures; with a single one, that of it.
  const char *all = N_BUILT_FOR == 1
                        ? archive_of(b, built_for[0])
                        : str_format(b->arena, "%s/libnnrt_cuda.a",
                                     b->installed ? b->libraries : NNAOT_CUDA_ARCHIVES);
  int kernels = kernels_for(t->sm[0]);
  if (t->n_sm > 1 || !kernels) return all;
  const char *one = archive_of(b, kernels);
  // Sources that are written and not linked do not depend on the archives of this installation.
  if (b->o->only_sources) return one;
  return !is_file(one) && is_file(all) && all_have(t->sm[0]) ? all : one;
}

static bool has_archive(Build *b, const char *nvcc) {
  const TargetSpec *t = &b->o->target;
  if (archive_of_nvcc(b, nvcc)) return true;
  // Every requested architecture must be covered by code, or by PTX of an older one.
  for (int i = 0; i < t->n_sm; i++) {
    if (t->n_sm > 1 ? all_have(t->sm[i]) : kernels_for(t->sm[i]) > 0) continue;
    StrBuf made = {.arena = b->arena};
    for (int k = 0; k < N_BUILT_FOR; k++)
      strbuf_addf(&made, "%ssm_%d", k ? ", " : "", built_for[k]);
    diag_error(b->d, NULL, "this nnaot has no CUDA kernels for sm_%d, only for %s", t->sm[i],
               made.at);
    diag_hint(b->d, "CMake's NNAOT_CUDA_ARCHITECTURES says what they are compiled for");
    return false;
  }
  const char *path = choose_archive(b, nvcc);
  // An archive with other headers than libnnrt.a is of another version.
  const char *ours = archive_headers(b->arena, str_format(b->arena, "%s/libnnrt.a", b->libraries));
  const char *its = archive_headers(b->arena, path);
  if (its && ours && str_equal(its, ours)) return true;
  if (!its)
    diag_error(b->d, NULL, "the runtime's CUDA kernels are not built: there is no '%s'", path);
  else
    diag_error(b->d, NULL, "'%s' is not of the same version as this nnaot", path);
  diag_hint(b->d, "`%s` builds them%s",
            t->n_sm == 1 ? str_format(b->arena, NNAOT_MAKE_CUDA_ONE, kernels_for(t->sm[0]))
                         : NNAOT_MAKE_CUDA,
            b->installed ? "; then install nnaot again" : "");
  return false;
}

// Sources can be written without a compiler and an archive; the architectures are then not checked.
static Readiness ready(Build *b, BackendOptions *o) {
  if (!build_find_runtime(b)) return READY_no;
  if (N_BUILT_FOR == 0) {
    diag_error(b->d, NULL, "this nnaot was built without the cuda target");
    diag_hint(b->d, "`%s` builds it with nvcc, or installs that", NNAOT_MAKE_CUDA);
    return READY_no;
  }
  const char *nvcc = find_nvcc(b->arena), *wanted = getenv("NVCC");
  bool found = nvcc && is_program(nvcc);
  if (!found && !o->only_sources) {
    diag_error(b->d, NULL, "cannot find the CUDA compiler '%s'",
               wanted && *wanted ? wanted : "nvcc");
    diag_hint(b->d, "install CUDA 13, or name nvcc in the environment variable NVCC");
    return READY_no;
  }
  // A name that nvcc does not know is a usage error; anything missing here is an error of the
  // machine.
  Architectures known = {0};
  if (found) known = known_architectures(b->arena, nvcc);
  if (!known.n && !o->only_sources) {
    diag_error(b->d, NULL, "'%s' does not say which architectures it knows", nvcc);
    diag_hint(b->d, "the environment variable NVCC names the nvcc of CUDA 13");
    return READY_no;
  }
  // nvcc must know all architectures of the target.
  const TargetSpec *t = &o->target;
  bool ok = true;
  for (int i = 0; known.n && i < t->n_sm; i++)
    if (!bsearch(&t->sm[i], known.at, (size_t)known.n, sizeof *known.at, compare_ints))
      ok = diag_error(b->d, NULL, "--target: there is no architecture 'sm_%d'", t->sm[i]);
  StrBuf all = {.arena = b->arena};
  for (int i = 0; i < known.n; i++)
    strbuf_addf(&all, "%ssm_%d", i ? ", " : "", known.at[i]);
  if (!ok) diag_hint(b->d, "there are: %s", all.at);
  if (!ok) return READY_mistake;
  Folders f = library_folders(b->arena, nvcc);
  ok = choose_link(b, o, &f) && (o->only_sources || has_archive(b, nvcc));
  return ok ? READY_yes : READY_no;
}

// -- Commands ----------------------------------------------------------------------------------

static Command nvcc_command(Arena *a, const char *nvcc) {
  Command c = {.arena = a, .tool = "CUDA compiler", .variable = "NVCC"};
  command_add(&c, nvcc);
  return c;
}

static Command kernels_command(Build *b, const char *nvcc) {
  const TargetSpec *t = &b->o->target;
  Command c = nvcc_command(b->arena, nvcc);
  command_adds(&c, "-std=c++17 -O3 -Xcompiler -fPIE");
  for (int i = 0; i < t->n_sm; i++)
    command_adds(&c,
                 str_format(b->arena, "-gencode arch=compute_%d,code=sm_%d", t->sm[i], t->sm[i]));
  // PTX of the newest lets later gpus compile the kernels.
  int newest = t->sm[t->n_sm - 1];
  command_adds(&c,
               str_format(b->arena, "-gencode arch=compute_%d,code=compute_%d", newest, newest));
  if (t->n_sm > 1) command_adds(&c, "--threads 0"); // compiles the architectures in parallel
  command_add(&c, str_format(b->arena, "-I%s", b->headers));
  command_adds(&c, "-c kernels.cu -o kernels.o");
  c.source = "kernels.cu";
  c.object = "kernels.o";
  return c;
}

static void add_libraries(Build *b, Command *c, const Folders *f) {
  Arena *a = b->arena;
  if (b->o->link == LINK_static) {
    // The whole archives are one -Xlinker argument, which nvcc splits at commas.
    StrBuf whole = {.arena = a};
    for (int i = 0; i < N_ARCHIVES; i++)
      if (archives[i].whole) strbuf_addf(&whole, "%s,", find_in(a, f, archives[i].name));
    command_adds(c, "-Xlinker");
    command_add(c, str_format(a, "--whole-archive,%s--no-whole-archive", whole.at));
    for (int i = 0; i < N_ARCHIVES; i++)
      if (!archives[i].whole) command_add(c, find_in(a, f, archives[i].name));
    command_adds(c, "-lz");
    return;
  }
  Folders used = shared_folders(a, f);
  for (int i = 0; i < used.n; i++)
    command_add(c, str_format(a, "-L%s", used.at[i]));
  for (int i = 0; i < N_SHARED; i++)
    command_add(c, str_format(a, "-l%s", shared[i]));
  command_adds(c, "-Xlinker -rpath -Xlinker");
  command_add(c, search_path(a, b->o, used.at, used.n, NULL));
}

static Command link_command(Build *b, const char *nvcc) {
  Folders f = library_folders(b->arena, nvcc);
  Command c = nvcc_command(b->arena, nvcc);
  command_adds(&c, "-cudart static");
  build_c_objects(b, &c);
  command_add(&c, "kernels.o");
  command_add(&c, str_format(b->arena, "%s/libnnrt.a", b->libraries));
  command_add(&c, choose_archive(b, nvcc));
  // Flags of the C compiler pass through nvcc.
  for (const char *p = NNAOT_RT_FLAGS " -fopenmp"; *p;) {
    size_t n = strcspn(p, " ");
    if (n) command_adds(&c, "-Xcompiler");
    if (n) command_add(&c, str_copy_n(b->arena, p, n));
    p += n + strspn(p + n, " ");
  }
  add_libraries(b, &c, &f);
  command_adds(&c, "-Xcompiler -pie -Xlinker -z,relro,-z,now -lm -lpthread -ldl -lrt -o program");
  return c;
}

static void commands(Build *b, Commands *out) {
  const char *found = find_nvcc(b->arena), *nvcc = found ? found : "nvcc";
  build_c_compile(b, "-O1", out);
  vec_push(b->arena, &out->at, kernels_command(b, nvcc));
  vec_push(b->arena, &out->at, link_command(b, nvcc));
}

const TargetBackend target_cuda = {"[:sm_XX[,sm_YY…]]",
                                   CUDA_ARCHITECTURES,
                                   "link aot-plans",
                                   fused,
                                   "kernels.cu",
                                   source_text,
                                   ready,
                                   commands,
                                   plans_make};
