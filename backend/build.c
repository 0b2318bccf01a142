// Sources to an executable:
//
//     cc -O3 -fopenmp -Irt program.c libnnrt_cpu.a libnnrt.a -ldnnl … -o train_rank, then the
//     payload behind it
//
// The compiler is $CC, or the one nnaot was built with, or cc.  The runtime is found from where
// nnaot itself is: ../lib/nnaot when installed, and in the build tree where CMake says.  The
// executable finds libdnnl beside itself, in lib/ beside itself, or where it was found now.
//
// Everything is made in a temporary folder; the executable is renamed to its name when it is whole.
// The code is ours, so when the compiler has something to say against it that is our mistake: the
// folder is kept, and named.  In all other cases it goes, also when nnaot is told to stop.

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.h"
#include "base/vec.h"
#include "program.h"
#include "temporary.h"

enum { PAGE = 4096, PIECE = 1 << 20 };

// What the build knows (CMakeLists.txt).
#ifndef NNAOT_CC
#define NNAOT_CC "cc"
#endif
#ifndef NNAOT_RT_HEADERS
#define NNAOT_RT_HEADERS   ""
#define NNAOT_RT_LIBRARIES ""
#define NNAOT_DNNL_DIR     ""
#define NNAOT_RT_FLAGS     ""
#endif

typedef struct Build {
  const Module *m;
  const BackendOptions *o;
  Arena *arena;
  Diag *d;
  const char *headers, *libraries, *dnnl; // folders
  const char *dir;                        // where sources are
} Build;

// -- The tools ---------------------------------------------------------------------------------

static bool is_file(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// The folder nnaot was installed under: that of bin/nnaot.
static const char *prefix(Arena *a) {
  char path[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n < 0) return "";
  path[n] = 0;
  for (int up = 0; up < 2; up++) {
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
  }
  return str_copy(a, path);
}

static bool find_runtime(Build *b) {
  const char *installed = str_format(b->arena, "%s/lib/nnaot", prefix(b->arena));
  b->headers = str_format(b->arena, "%s/include", installed);
  b->libraries = b->dnnl = installed;
  if (is_file(str_format(b->arena, "%s/libnnrt.a", installed))) return true;
  b->headers = NNAOT_RT_HEADERS;
  b->libraries = NNAOT_RT_LIBRARIES;
  b->dnnl = NNAOT_DNNL_DIR;
  return is_file(str_format(b->arena, "%s/libnnrt.a", b->libraries));
}

static const char *compiler(void) {
  const char *cc = getenv("CC");
  if (cc && *cc) return cc;
  return is_file(NNAOT_CC) ? NNAOT_CC : "cc";
}

// -- Commands ----------------------------------------------------------------------------------

typedef struct Command {
  Arena *arena;
  Vec(char *) word;
} Command;

static void add_word(Command *c, const char *word) {
  vec_push(c->arena, &c->word, arena_copy(c->arena, word, strlen(word) + 1));
}

// Several, between spaces.
static void add_words(Command *c, const char *words) {
  for (const char *p = words; *p;) {
    size_t n = strcspn(p, " ");
    if (n) add_word(c, str_copy_n(c->arena, p, n));
    p += n + strspn(p + n, " ");
  }
}

// As a shell reads it.
static const char *command_text(const Command *c) {
  StrBuf b = {.arena = c->arena};
  for (int i = 0; i < c->word.n; i++) {
    strbuf_add(&b, i ? " " : "");
    if (!strpbrk(c->word.at[i], " \t\n'\"$\\`*?[]{}()<>|&;~#!")) {
      strbuf_add(&b, c->word.at[i]);
      continue;
    }
    strbuf_add(&b, "'");
    for (const char *p = c->word.at[i]; *p; p++)
      strbuf_addf(&b, *p == '\'' ? "'\\%c'" : "%c", *p);
    strbuf_add(&b, "'");
  }
  return b.at;
}

// Says why the compiler failed; the folder stays when there is something in it to look at.
static bool failed(Build *b, const Command *c, int status) {
  struct stat log;
  const char *cc = c->word.at[0];
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    diag_error(b->d, NULL, "cannot run the C compiler '%s'", cc);
    diag_hint(b->d, "install one, or name it in the environment variable CC");
  } else if (WIFSIGNALED(status)) {
    diag_error(b->d, NULL, "the C compiler '%s' was ended by a signal: %s", cc,
               strsignal(WTERMSIG(status)));
  } else if (stat(str_format(b->arena, "%s/log", b->dir), &log) || log.st_size == 0) {
    diag_error(b->d, NULL, "the C compiler '%s' failed, exit status %d, and does not say why", cc,
               WEXITSTATUS(status));
  } else {
    diag_error(b->d, NULL, "the generated code does not compile; this is a mistake of nnaot");
    diag_note(b->d, NULL, "the code, and what the compiler says in 'log', are in '%s'", b->dir);
    diag_note(b->d, NULL, "the command was: %s", command_text(c));
    temporary_dir(NULL);
  }
  return false;
}

// Runs it in the folder of the sources, its output in the file log there.
static bool run(Build *b, Command *c) {
  vec_push(c->arena, &c->word, NULL);
  c->word.n--;
  if (b->o->verbose) fprintf(stderr, "%s\n", command_text(c));
  pid_t child = temporary_fork();
  if (child < 0)
    return diag_error(b->d, NULL, "cannot start '%s': %s", c->word.at[0], strerror(errno));
  if (child == 0) {
    int log = open(str_format(b->arena, "%s/log", b->dir), O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 || chdir(b->dir)) _exit(126);
    execvp(c->word.at[0], c->word.at);
    _exit(127);
  }
  int status;
  if (temporary_wait(child, &status) < 0)
    return diag_error(b->d, NULL, "cannot wait for '%s': %s", c->word.at[0], strerror(errno));
  return (WIFEXITED(status) && WEXITSTATUS(status) == 0) || failed(b, c, status);
}

static Command compile_command(const Build *b) {
  Command c = {.arena = b->arena};
  add_words(&c, compiler());
  // No flag changes what a formula means but by rounding: products may be fused with sums.
  add_words(&c,
            "-std=gnu17 -O3 -fopenmp -ffp-contract=fast -fno-math-errno -fno-trapping-math -fwrapv "
            "-Wall -Wextra -Wpedantic");
  add_words(&c, NNAOT_RT_FLAGS);
  add_word(&c, str_format(b->arena, "-I%s", b->headers));
  add_words(&c, "program.c -o program");
  add_words(&c, "-Wl,--start-group");
  add_word(&c, str_format(b->arena, "%s/libnnrt.a", b->libraries));
  add_word(&c, str_format(b->arena, "%s/libnnrt_cpu.a", b->libraries));
  add_words(&c, "-Wl,--end-group");
  add_word(&c, str_format(b->arena, "-L%s", b->dnnl));
  add_words(&c, "-ldnnl -lm -lpthread -ldl -Wl,-rpath,$ORIGIN:$ORIGIN/lib");
  add_word(&c, str_format(b->arena, "-Wl,-rpath,%s", b->dnnl));
  return c;
}

const char *backend_command(Arena *a) {
  Build b = {.arena = a};
  if (!find_runtime(&b)) return NULL;
  Command c = compile_command(&b);
  return command_text(&c);
}

static bool compile(Build *b) {
  Command c = compile_command(b);
  return run(b, &c);
}

// -- The payload behind it ---------------------------------------------------------------------

static bool copy_bytes(FILE *from, FILE *to, int64_t *n) {
  char *piece = malloc(PIECE);
  size_t got;
  *n = 0;
  while (piece && (got = fread(piece, 1, PIECE, from)) > 0) {
    if (fwrite(piece, 1, got, to) != got) break;
    *n += (int64_t)got;
  }
  bool ok = piece && !ferror(from) && !ferror(to);
  free(piece);
  return ok;
}

static void pad(FILE *f, int64_t n, int64_t to) {
  for (; n % to; n++)
    fputc(0, f);
}

// struct NnrtTrailer of rt/nnrt.h; little-endian, as are the machines.
static void write_trailer(FILE *f, int64_t offset, int64_t bytes) {
  const int64_t reserved = 0;
  fwrite("nnrtpay1", 1, 8, f);
  fwrite(&offset, 8, 1, f);
  fwrite(&bytes, 8, 1, f);
  fwrite(&reserved, 8, 1, f);
}

static bool append_payload(Build *b, FILE *out) {
  FILE *program = fopen(str_format(b->arena, "%s/program", b->dir), "rb");
  FILE *payload = fopen(str_format(b->arena, "%s/payload.bin", b->dir), "rb");
  int64_t offset = 0, bytes = 0;
  bool ok = program && payload && copy_bytes(program, out, &offset);
  if (ok) {
    pad(out, offset, PAGE);
    offset = (offset + PAGE - 1) / PAGE * PAGE;
    ok = copy_bytes(payload, out, &bytes);
    pad(out, bytes, 8);
    write_trailer(out, offset, bytes);
  }
  if (program) fclose(program);
  if (payload) fclose(payload);
  return ok && fflush(out) == 0 && !ferror(out);
}

// The temporary file beside `output`, so that the last step is a rename.
static bool write_output(Build *b, const char *output) {
  const char *part = str_format(b->arena, "%s.part-%ld", output, (long)getpid());
  temporary_file(part);
  FILE *f = fopen(part, "wb");
  if (!f) return diag_error(b->d, NULL, "cannot write '%s': %s", output, strerror(errno));
  bool ok = append_payload(b, f);
  int error = errno;
  mode_t mask = umask(0);
  umask(mask);
  ok = ok && fchmod(fileno(f), 0777 & ~mask) == 0;
  if (fclose(f) != 0) {
    ok = false;
    error = errno;
  }
  if (ok && rename(part, output) != 0) {
    ok = false;
    error = errno;
  }
  temporary_file(NULL);
  if (ok) return true;
  unlink(part);
  return diag_error(b->d, NULL, "cannot write '%s': %s", output, strerror(error));
}

// -- All of it ---------------------------------------------------------------------------------

static bool build_one(Build *b, const char *output) {
  bool ok = emit(b->m, b->dir, b->o, b->d) && compile(b) && write_output(b, output);
  temporary_dir_remove();
  return ok;
}

static bool make_dir(Build *b) {
  const char *tmp = getenv("TMPDIR");
  char *dir =
      arena_copy(b->arena, str_format(b->arena, "%s/nnaot-XXXXXX", tmp && *tmp ? tmp : "/tmp"),
                 strlen(tmp && *tmp ? tmp : "/tmp") + sizeof "/nnaot-XXXXXX");
  if (!mkdtemp(dir))
    return diag_error(b->d, NULL, "cannot make a folder '%s': %s", dir, strerror(errno));
  b->dir = dir;
  temporary_dir(dir);
  return true;
}

bool backend_writable(const char *output, Diag *d) {
  struct stat st;
  // What takes its name at the end would replace a device, too.
  if (stat(output, &st) == 0 && !S_ISREG(st.st_mode))
    return diag_error(d, NULL, "cannot write '%s': it is %s", output,
                      S_ISDIR(st.st_mode) ? "a folder" : "not a file");
  Arena *a = arena_new();
  const char *part = str_format(a, "%s.part-%ld", output, (long)getpid());
  int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  bool ok = fd >= 0;
  if (!ok) diag_error(d, NULL, "cannot write '%s': %s", output, strerror(errno));
  if (ok) {
    close(fd);
    unlink(part);
  }
  arena_free(a);
  return ok;
}

static int module_ranks(const Module *m) {
  return m->mesh ? m->mesh->n_devices : 1;
}

// The programs of all ranks, `jobs` at a time, each in a process of its own.
static bool build_split(Build *b, BackendOptions *options) {
  int ranks = module_ranks(b->m), running = 0;
  bool ok = true;
  fflush(NULL);
  for (int rank = 0; rank < ranks || running > 0;) {
    if (ok && rank < ranks && running < options->jobs && running < MAX_CHILDREN) {
      options->only_rank = rank++;
      pid_t child = temporary_fork();
      if (child == 0) {
        temporary_watch();
        const char *output = str_format(b->arena, "%s.%d", options->output, options->only_rank);
        _exit(make_dir(b) && build_one(b, output) ? 0 : 1);
      }
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

bool backend_build(const Module *m, const BackendOptions *o, Diag *d) {
  BackendOptions options = *o;
  Build b = {.m = m, .o = &options, .arena = arena_new(), .d = d};
  temporary_watch();
  bool ok =
      find_runtime(&b) ||
      diag_error(d, NULL, "the runtime is neither '%s/lib/nnaot/libnnrt.a' nor '%s/libnnrt.a'",
                 prefix(b.arena), NNAOT_RT_LIBRARIES);
  if (ok)
    ok = o->split_ranks ? build_split(&b, &options) : make_dir(&b) && build_one(&b, o->output);
  arena_free(b.arena);
  return ok;
}
