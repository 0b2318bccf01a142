// Builds an executable from sources:
//
//     cc -O3 -fopenmp -Irt -c program.c -o program.o
//     cc -fopenmp program.o libnnrt_cpu.a libnnrt.a -ldnnl … -o train_rank
//
// a large program of several files, compiled in parallel (pieces.c), and appends the payload and
// the checksums of all parts (rt/trailer.h).
//
// The commands are the target's.  The C compiler is $CC, or the one nnaot was built with, or cc;
// for another kind of processor, aarch64-linux-gnu-gcc. The runtime is found relative to nnaot:
// ../lib/nnaot if installed, and CMake's location in the build tree.
//
// Everything is made in a temporary folder; the complete executable is renamed to its name.
// Compiler errors in generated code are our mistake: the folder is kept, and named.  In all other
// cases it is removed, also when nnaot is told to stop.

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/whole_file.h"
#include "rt/trailer.h"
#include "target.h"
#include "temporary.h"

// -- The tools ---------------------------------------------------------------------------------

bool is_file(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// The folder that nnaot is installed in: the one that has bin/nnaot.
static const char *prefix(Arena *a) {
  char path[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n < 0) return "";
  path[n] = 0;
  // /usr/bin/nnaot is in /usr.
  for (int up = 0; up < 2; up++) {
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
  }
  return str_copy(a, path);
}

static bool find_runtime(Build *b) {
  const char *installed = str_format(b->arena, "%s/lib/nnaot", prefix(b->arena));
  b->headers = str_format(b->arena, "%s/include", installed);
  b->libraries = installed;
  b->installed = is_file(str_format(b->arena, "%s/libnnrt.a", installed));
  if (b->installed) return true;
  b->headers = NNAOT_RT_HEADERS;
  b->libraries = NNAOT_RT_LIBRARIES;
  return is_file(str_format(b->arena, "%s/libnnrt.a", b->libraries));
}

bool build_find_runtime(Build *b) {
  return find_runtime(b) ||
         diag_error(b->d, NULL,
                    "the runtime is neither '%s/lib/nnaot/libnnrt.a' nor '%s/libnnrt.a'",
                    prefix(b->arena), NNAOT_RT_LIBRARIES);
}

const char *build_c_compiler(Arena *a, const BackendOptions *o, const char **out_variable) {
  const char *processor = o->target.processor;
  *out_variable = processor ? str_format(a, "CC_%s", processor) : "CC";
  const char *cc = getenv(*out_variable);
  if (cc && *cc) return cc;
  if (processor) return str_format(a, "%s-linux-gnu-gcc", processor);
  return is_file(NNAOT_CC) ? NNAOT_CC : "cc";
}

Command build_c_command(Build *b) {
  Command c = {.arena = b->arena, .tool = "C compiler"};
  command_adds(&c, build_c_compiler(b->arena, b->o, &c.variable));
  // The flags change formulas by rounding only: products may be fused with sums.
  command_adds(&c, "-std=gnu17 -fopenmp -ffp-contract=fast -fno-math-errno -fno-trapping-math "
                   "-fwrapv -fPIE -fstack-protector-strong -Wall -Wextra -Wpedantic");
  command_adds(&c, b->o->target.processor ? "-fsigned-char" : NNAOT_RT_FLAGS);
  command_add(&c, str_format(b->arena, "-I%s", b->headers));
  return c;
}

// A command for one file, separate from linking for compiler caches.
static void compile_one(Build *b, const char *level, const char *name, Commands *out) {
  Command c = build_c_command(b);
  command_adds(&c, str_format(b->arena, "%s -c %s.c -o %s.o", level, name, name));
  c.source = str_format(b->arena, "%s.c", name);
  c.object = str_format(b->arena, "%s.o", name);
  vec_push(b->arena, &out->at, c);
}

void build_c_compile(Build *b, const char *level, Commands *out) {
  const Sources *s = &b->sources;
  // Kernels are optimised, and lists of calls and tables need not be.
  compile_one(b, s->divided ? "-O1" : level, "program", out);
  for (int i = 0; i < s->n_kernels; i++)
    compile_one(b, "-O3", str_format(b->arena, "kernels_%d", i), out);
  for (int i = 0; i < s->n_calls; i++)
    compile_one(b, "-O1", str_format(b->arena, "calls_%d", i), out);
}

void build_c_objects(const Build *b, Command *link) {
  command_add(link, "program.o");
  for (int i = 0; i < b->sources.n_kernels; i++)
    command_add(link, str_format(b->arena, "kernels_%d.o", i));
  for (int i = 0; i < b->sources.n_calls; i++)
    command_add(link, str_format(b->arena, "calls_%d.o", i));
}

const char *backend_commands(const BackendOptions *o, const Sources *sources, Arena *a) {
  Build b = {.arena = a, .o = o, .sources = *sources};
  StrBuf text = {.arena = a};
  Commands all = {0};
  if (!find_runtime(&b)) return "";
  target_backend(o->target.target)->commands(&b, &all);
  for (int i = 0; i < all.at.n; i++)
    strbuf_addf(&text, "//   %s\n", c_comment(a, command_text(&all.at.at[i])));
  return text.at;
}

// -- The appended payload ----------------------------------------------------------------------

static bool append_payload(Build *b, FILE *out) {
  FILE *program = fopen(str_format(b->arena, "%s/program", b->dir), "rb");
  FILE *payload = fopen(str_format(b->arena, "%s/payload.bin", b->dir), "rb");
  FILE *plans = fopen(str_format(b->arena, "%s/plans", b->dir), "rb"); // absent without plans
  bool ok = program && payload && nnrt_write_executable(program, INT64_MAX, payload, plans, out);
  if (program) fclose(program);
  if (payload) fclose(payload);
  if (plans) fclose(plans);
  return ok;
}

// The temporary file is beside `output`, so that the last step is a rename.
static bool write_output(Build *b, const char *output) {
  WholeFile part;
  if (!whole_file_open(&part, output))
    return diag_error(b->d, NULL, "cannot write '%s': %s", output, strerror(errno));
  // A signal during the write removes the partial file.
  temporary_file(part.temporary);
  bool ok = append_payload(b, part.f);
  // umask has no getter: the executable gets the bits that the user's umask leaves.
  mode_t mask = umask(0);
  umask(mask);
  ok = ok && fchmod(fileno(part.f), 0777 & ~mask) == 0;
  int error = errno;
  // The old executable stays intact until the new one is complete.
  bool written = whole_file_close(&part, ok);
  if (ok && !written) error = errno;
  temporary_file(NULL);
  return written || diag_error(b->d, NULL, "cannot write '%s': %s", output, strerror(error));
}

// -- The executable ----------------------------------------------------------------------------

static bool build_one(Build *b, const char *output) {
  bool ok = program_emit(b->m, b->dir, b->o, &b->sources, b->d);
  // The commands of the target make `program` in the folder.
  Commands all = {0};
  if (ok) target_backend(b->o->target.target)->commands(b, &all);
  ok = ok && commands_run(b, &all) && target_backend(b->o->target.target)->finish(b) &&
       write_output(b, output);
  temporary_dir_remove();
  return ok;
}

static bool make_dir(Build *b) {
  char dir[PATH_MAX];
  if (!temporary_dir_make(dir, sizeof dir, "nnaot"))
    return diag_error(b->d, NULL, "cannot make a folder '%s': %s", dir, strerror(errno));
  // From here on a signal removes the folder.
  b->dir = str_copy(b->arena, dir);
  temporary_dir(b->dir);
  return true;
}

bool backend_writable(const char *output, Diag *d) {
  struct stat st;
  // The final rename would replace a device, too.
  if (stat(output, &st) == 0 && !S_ISREG(st.st_mode))
    return diag_error(d, NULL, "cannot write '%s': it is %s", output,
                      S_ISDIR(st.st_mode) ? "a folder" : "not a file");
  // The folder is writable if a temporary file can be made there.
  return whole_file_possible(output) ||
         diag_error(d, NULL, "cannot write '%s': %s", output, strerror(errno));
}

// Builds the programs of all ranks, `jobs` at a time, each in its own process.  With more jobs than
// ranks, a program gets its share of them.
static bool build_split(Build *b, BackendOptions *options) {
  int ranks, running = 0, at_once = options->jobs;
  module_devices(b->m, b->arena, &ranks);
  if (at_once > ranks) at_once = ranks;
  options->jobs /= at_once;
  bool ok = true;
  // Children must not write buffered output again.
  fflush(NULL);
  for (int rank = 0; rank < ranks || running > 0;) {
    // Start as many processes as allowed; after a failure start none, but wait for the running
    // ones.
    if (ok && rank < ranks && running < at_once && running < MAX_CHILDREN) {
      options->only_rank = rank++;
      pid_t child = temporary_fork();
      if (child == 0) {
        temporary_watch();
        const char *output = str_format(b->arena, "%s.%d", options->output, options->only_rank);
        _exit(make_dir(b) && build_one(b, output) ? 0 : 1);
      }
      // The child has its own copy of the options.
      running += child > 0;
      ok &= child > 0 || diag_error(b->d, NULL, "cannot start a process: %s", strerror(errno));
      continue;
    }
    int status;
    if (running == 0) break;
    if (temporary_wait(-1, &status) < 0) return false;
    running--;
    ok &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return ok;
}

Readiness backend_ready(BackendOptions *o, Diag *d) {
  Build b = {.o = o, .arena = arena_new(), .d = d};
  Readiness ready = target_backend(o->target.target)->ready(&b, o);
  arena_free(b.arena);
  return ready;
}

bool backend_build(const Module *m, const BackendOptions *o, Diag *d) {
  BackendOptions options = *o;
  if (!options.jobs) options.jobs = processors_available();
  Build b = {.m = m, .o = &options, .arena = arena_new(), .d = d};
  temporary_watch();
  bool ok = module_check_ranks(m, d) && build_find_runtime(&b);
  if (ok)
    ok = o->split_ranks ? build_split(&b, &options) : make_dir(&b) && build_one(&b, o->output);
  arena_free(b.arena);
  return ok;
}
