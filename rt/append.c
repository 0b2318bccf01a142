// --append FILE: completes a program that was linked by hand, as the head of program.c says.
//
//     cc … program.o libnnrt.a … -o program
//     ./program --append payload.bin
//
// The running program writes its own file again, with the payload, plans if a second file is given,
// and the checksums of all (trailer.h), and renames it: nnaot does the same when it compiles.

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"
#include "trailer.h"

static FILE *open_file(const char *path, Why *w) {
  struct stat st;
  FILE *f = fopen(path, "rbe");
  if (!f) {
    why(w, "--append: cannot read '%s': %s", path, strerror(errno));
    return NULL;
  }
  if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode)) return f;
  fclose(f);
  why(w, "--append: '%s' is not a file", path);
  return NULL;
}

static bool write_self(FILE *payload, FILE *plans, Why *w) {
  char path[PATH_MAX];
  struct stat st;
  OutFile out;
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  FILE *program = n < 0 ? NULL : fopen("/proc/self/exe", "rbe");
  if (!program) return why(w, "cannot read this executable: %s", strerror(errno));
  path[n] = 0;
  bool ok = nnrt_out_begin(&out, path, w);
  // Files are complete or absent: a stream over the descriptor of one that gets its name at the
  // end.
  FILE *f = ok ? fdopen(dup(out.fd), "wb") : NULL;
  if (ok && (!f || fstat(fileno(program), &st) != 0 || fchmod(out.fd, st.st_mode & 07777) != 0 ||
             !nnrt_write_executable(program, nnrt_program_bytes(), payload, plans, f))) {
    ok = why(w, "cannot write '%s': %s", path, strerror(errno));
    nnrt_out_abandon(&out);
  }
  fclose(program);
  if (f) fclose(f);
  return ok && nnrt_out_commit(&out, w);
}

bool nnrt_append(const NnrtProgram *p, const Flag *files, Why *w) {
  struct stat st;
  if (files->n > 2) return why(w, "--append is given for the payload, and once more for plans");
  FILE *payload = open_file(files->list[0], w);
  if (!payload) return false;
  FILE *plans = files->n > 1 ? open_file(files->list[1], w) : NULL;
  bool ok = files->n == 1 || plans;
  if (ok && (fstat(fileno(payload), &st) != 0 || st.st_size != p->payload_bytes))
    ok = why(w, "--append: '%s' is of another program: it has %lld bytes, and this one needs %lld",
             files->list[0], (long long)st.st_size, (long long)p->payload_bytes);
  ok = ok && write_self(payload, plans, w);
  fclose(payload);
  if (plans) fclose(plans);
  return ok;
}
