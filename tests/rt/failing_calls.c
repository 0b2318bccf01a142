// Loaded before a program (LD_PRELOAD): lets one call of the C library fail.
//
//     FAIL_CALL    write, pwrite, writev, fsync, rename, close, mmap, malloc, open, flock, fallocate, ftruncate
//     FAIL_NUMBER  the call, from 1
//     FAIL_HOW     an error ("EIO", …); "short": half of the bytes are written; "kill": SIGKILL
//     FAIL_REST    if set, all calls after it fail, too, with this error
//     FAIL_REPORT  a file that gets a line as the call fails: its number and the calling library
//
// Calls on the descriptors 0 to 2 do not count, so messages are printed.  `open` stands for openat,
// fopen and opendir, too, and `malloc` for all functions that allocate.

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

// The allocator of glibc under its own names: dlsym allocates.
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

enum How { PASSES, FAILS, SHORT };

static const struct {
  const char *name;
  int code;
} errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"ENOMEM", ENOMEM}, {"EMFILE", EMFILE},
              {"ENOLCK", ENOLCK}, {"EINTR", EINTR},   {"EACCES", EACCES}, {"EDQUOT", EDQUOT}};

static int code_of(const char *name) {
  for (size_t i = 0; name && i < sizeof errors / sizeof *errors; i++)
    if (strcmp(name, errors[i].name) == 0) return errors[i].code;
  return EIO;
}

// Without the functions of the C library, which are replaced here.
static void report(long number, const void *caller) {
  const char *path = getenv("FAIL_REPORT");
  Dl_info info;
  char line[300];
  if (!path) return;
  const char *library = dladdr(caller, &info) && info.dli_fname ? info.dli_fname : "?";
  int n = snprintf(line, sizeof line, "%ld %.250s\n", number, library);
  long fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  syscall(SYS_write, fd, line, (size_t)n);
  syscall(SYS_close, fd);
}

// Whether this call fails: sets errno then.
static enum How outcome(const char *call, int fd, const void *caller) {
  static atomic_long count;
  static _Thread_local int inside;
  const char *which = getenv("FAIL_CALL"), *how = getenv("FAIL_HOW"), *rest = getenv("FAIL_REST");
  if (!which || strcmp(which, call) != 0 || (fd >= 0 && fd <= STDERR_FILENO) || inside)
    return PASSES;
  long number = atomic_fetch_add(&count, 1) + 1, n = strtol(getenv("FAIL_NUMBER"), NULL, 10);
  if (number < n || (number > n && !rest)) return PASSES;
  if (number == n) {
    inside = 1;
    report(number, caller);
    inside = 0;
    if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(how, "short") == 0) return SHORT;
  }
  errno = code_of(number == n ? how : rest);
  return FAILS;
}

#define HERE       __builtin_return_address(0)
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *at, size_t n) {
  enum How how = outcome("write", fd, HERE);
  if (how == FAILS) return -1;
  return syscall(SYS_write, fd, at, how == SHORT ? (n + 1) / 2 : n);
}

ssize_t pwrite(int fd, const void *at, size_t n, off_t offset) {
  enum How how = outcome("pwrite", fd, HERE);
  if (how == FAILS) return -1;
  return syscall(SYS_pwrite64, fd, at, how == SHORT ? (n + 1) / 2 : n, offset);
}

ssize_t pwrite64(int fd, const void *at, size_t n, off_t offset) {
  enum How how = outcome("pwrite", fd, HERE);
  if (how == FAILS) return -1;
  return syscall(SYS_pwrite64, fd, at, how == SHORT ? (n + 1) / 2 : n, offset);
}

ssize_t writev(int fd, const struct iovec *v, int n) {
  enum How how = outcome("writev", fd, HERE);
  if (how == FAILS) return -1;
  return syscall(SYS_writev, fd, v, how == SHORT ? (n + 1) / 2 : n);
}

int fsync(int fd) {
  return outcome("fsync", fd, HERE) ? -1 : (int)syscall(SYS_fsync, fd);
}

int flock(int fd, int operation) {
  return outcome("flock", fd, HERE) ? -1 : (int)syscall(SYS_flock, fd, operation);
}

int ftruncate(int fd, off_t n) {
  return outcome("ftruncate", fd, HERE) ? -1 : (int)syscall(SYS_ftruncate, fd, n);
}

int ftruncate64(int fd, off_t n) {
  return outcome("ftruncate", fd, HERE) ? -1 : (int)syscall(SYS_ftruncate, fd, n);
}

int fallocate(int fd, int mode, off_t at, off_t n) {
  return outcome("fallocate", fd, HERE) ? -1 : (int)syscall(SYS_fallocate, fd, mode, at, n);
}

int fallocate64(int fd, int mode, off_t at, off_t n) {
  return outcome("fallocate", fd, HERE) ? -1 : (int)syscall(SYS_fallocate, fd, mode, at, n);
}

int rename(const char *from, const char *to) {
  return outcome("rename", -1, HERE) ? -1 : (int)syscall(SYS_rename, from, to);
}

// As the kernel's: the descriptor is free also after an error.
int close(int fd) {
  enum How how = outcome("close", fd, HERE);
  int code = errno, result = (int)syscall(SYS_close, fd);
  if (how) errno = code;
  return how ? -1 : result;
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
  if (outcome("mmap", -1, HERE)) return MAP_FAILED;
  return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset); // NOLINT
}

void *mmap64(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
  if (outcome("mmap", -1, HERE)) return MAP_FAILED;
  return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset); // NOLINT
}

// ---- open

static int open_at(const void *caller, int folder, const char *path, int how, mode_t mode) {
  return outcome("open", -1, caller) ? -1 : (int)syscall(SYS_openat, folder, path, how, mode);
}

#define WITH_MODE(call)                                                                            \
  va_list more;                                                                                    \
  va_start(more, how);                                                                             \
  mode_t mode = how & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                            \
  va_end(more);                                                                                    \
  return call;

int open(const char *path, int how, ...) {
  WITH_MODE(open_at(HERE, AT_FDCWD, path, how, mode))
}

int open64(const char *path, int how, ...) {
  WITH_MODE(open_at(HERE, AT_FDCWD, path, how, mode))
}

int openat(int folder, const char *path, int how, ...) {
  WITH_MODE(open_at(HERE, folder, path, how, mode))
}

int openat64(int folder, const char *path, int how, ...) {
  WITH_MODE(open_at(HERE, folder, path, how, mode))
}

int __open_2(const char *path, int how);
int __open_2(const char *path, int how) {
  return open_at(HERE, AT_FDCWD, path, how, 0);
}

int __open64_2(const char *path, int how);
int __open64_2(const char *path, int how) {
  return open_at(HERE, AT_FDCWD, path, how, 0);
}

FILE *fopen(const char *path, const char *how) {
  return outcome("open", -1, HERE) ? NULL : REAL(fopen)(path, how);
}

FILE *fopen64(const char *path, const char *how) {
  return outcome("open", -1, HERE) ? NULL : REAL(fopen64)(path, how);
}

DIR *opendir(const char *path) {
  return outcome("open", -1, HERE) ? NULL : REAL(opendir)(path);
}

// ---- malloc

void *malloc(size_t n) {
  return outcome("malloc", -1, HERE) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
  return outcome("malloc", -1, HERE) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
  return outcome("malloc", -1, HERE) ? NULL : __libc_realloc(p, n);
}

void *memalign(size_t align, size_t n) {
  return outcome("malloc", -1, HERE) ? NULL : __libc_memalign(align, n);
}

void *aligned_alloc(size_t align, size_t n) {
  return outcome("malloc", -1, HERE) ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n) {
  void *p = outcome("malloc", -1, HERE) ? NULL : __libc_memalign(align, n);
  if (p) *out = p;
  return p ? 0 : ENOMEM;
}
