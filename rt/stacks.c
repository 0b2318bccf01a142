// The stacks of all ranks, printed on SIGQUIT, after which the job ends:
//
//     train: rank 1 on host7 (pid 4711), its own thread, in 'linear  mlp.onnx:/fc1' of step 12
//     train: rank 1: ./train(nnrt_linear_f32+0x1f3)[0x55d0c3a0b1f3]
//     train: rank 1: ./train(+0x8a41)[0x55d0c39fba41]
//
// The number after + of a function without a name is its address for addr2line -e train.  The
// thread of signals is the leader.  It tells the other processes, then signals the other threads of
// this one, one after another: each prints its stack, and stays in the handler.
//
// Handlers call async-signal-safe functions only, with two exceptions that take no lock once they
// have run before: backtrace, which loads libgcc the first time, and backtrace_symbols_fd.

#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "peers.h"

enum {
  MOST_THREADS = 1024,
  MOST_FRAMES = 64,
  OWN_FRAMES = 3,
  TEXT = 1 << 15,
  PATIENCE_MS = 2000,
  PATIENCE_SECONDS = 60
};

typedef struct Thread {
  pid_t tid;
  const NnrtRank *rank;
  const char *role;
} Thread;

static Thread threads[MOST_THREADS];
static atomic_int n_threads, n_printed;
static atomic_bool leading;
static void (*tell_others)(void);
static char speaker[128];
static int scratch = -1; // a memory file, since symbols are written to files
static char raw[TEXT], text[2 * TEXT];

// ---- text without the C library's formats

static size_t add(size_t n, const char *more) {
  for (; *more && n < sizeof text - 2; more++)
    text[n++] = *more == '\n' || (unsigned char)*more >= ' ' ? *more : '?';
  return n;
}

static size_t add_number(size_t n, long long x) {
  char digits[24], *at = digits + sizeof digits - 1;
  *at = 0;
  do
    *--at = (char)('0' + x % 10);
  while ((x /= 10) > 0);
  return add(n, at);
}

static size_t add_rank(size_t n, const NnrtRank *r) {
  n = add(add(n, speaker), ": ");
  return r ? add_number(add(n, "rank "), r->rank) : add(n, "no rank");
}

// The first line: the thread, and the operation.
static size_t add_head(size_t n, const Thread *t) {
  n = add_rank(n, t->rank);
  if (t->rank && t->rank->run->peers) {
    const Peer *peer = &t->rank->run->peers->peer[t->rank->rank];
    n = add(add(n, " on "), peer->host);
  }
  n = add(add_number(add(n, " (pid "), getpid()), "), ");
  n = add(n, t->role);
  if (!t->rank || !t->rank->graph) return add(n, "\n");
  const NnrtGraph *g = t->rank->graph;
  int op = t->rank->op ? __atomic_load_n(t->rank->op, __ATOMIC_RELAXED) : -1;
  if (op >= 0 && op < g->n_ops) n = add(add(add(n, ", in '"), g->ops[op]), "'");
  return add(add_number(add(n, " of step "), t->rank->step + 1), "\n");
}

static void print_all(size_t n) {
  for (ssize_t done = 0, step; done < (ssize_t)n; done += step)
    if ((step = write(STDERR_FILENO, text + done, n - (size_t)done)) <= 0) break;
}

static const Thread *current(void) {
  static const Thread unknown = {.role = "another thread"};
  pid_t tid = (pid_t)syscall(SYS_gettid);
  int n = atomic_load(&n_threads);
  for (int i = 0; i < n && i < MOST_THREADS; i++)
    if (threads[i].tid == tid) return &threads[i];
  return &unknown;
}

static void print_stack(void) {
  void *frame[MOST_FRAMES];
  const Thread *t = current();
  int n = backtrace(frame, MOST_FRAMES), skip = n > OWN_FRAMES ? OWN_FRAMES : 0;
  ssize_t bytes = 0;
  if (scratch >= 0 && ftruncate(scratch, 0) == 0 && lseek(scratch, 0, SEEK_SET) == 0) {
    backtrace_symbols_fd(frame + skip, n - skip, scratch);
    bytes = pread(scratch, raw, sizeof raw - 1, 0);
  }
  raw[bytes > 0 ? bytes : 0] = 0;
  // All lines in one write, each with its rank: those of other processes come at the same time.
  size_t end = add_head(0, t);
  for (char *line = raw; *line;) {
    char *next = strchr(line, '\n');
    if (next) *next = 0;
    end = add(add(add(add_rank(end, t->rank), ": "), line), "\n");
    line = next ? next + 1 : line + strlen(line);
  }
  print_all(end);
}

// ---- the handlers

static void sleep_ms(long ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static int inner_signal(void) {
  return SIGRTMAX - 1;
}

static void follow(int number) {
  (void)number;
  print_stack();
  atomic_fetch_add(&n_printed, 1);
  // The job ends: this thread does nothing more.
  for (;;)
    pause();
}

static void lead(int number) {
  if (atomic_exchange(&leading, true)) return;
  if (tell_others) tell_others();
  // Symbols need the lock of the dynamic linker: a thread that hangs in it must not keep the job.
  signal(SIGALRM, SIG_DFL);
  alarm(PATIENCE_SECONDS);
  pid_t self = (pid_t)syscall(SYS_gettid);
  int n = atomic_load(&n_threads);
  for (int i = 0; i < n && i < MOST_THREADS; i++) {
    int before = atomic_load(&n_printed);
    if (threads[i].tid == self || !threads[i].tid) continue;
    if (syscall(SYS_tgkill, getpid(), threads[i].tid, inner_signal()) != 0) continue;
    // A thread in the kernel may come late.
    for (int ms = 0; ms < PATIENCE_MS && atomic_load(&n_printed) == before; ms += 5)
      sleep_ms(5);
  }
  // Launchers end all processes when one ends: the others print meanwhile.
  if (tell_others) sleep_ms(1000);
  _exit(128 + number);
}

void nnrt_stacks_begin(void) {
  void *frame[4];
  backtrace(frame, 4); // loads libgcc
  scratch = memfd_create("nnrt-stacks", MFD_CLOEXEC);
  struct sigaction quit = {.sa_handler = lead, .sa_flags = SA_RESTART};
  struct sigaction inner = {.sa_handler = follow, .sa_flags = SA_RESTART};
  sigaction(SIGQUIT, &quit, NULL);
  sigaction(inner_signal(), &inner, NULL);
}

void nnrt_stacks_as(const char *program) {
  strncpy(speaker, program, sizeof speaker - 1);
}

void nnrt_stacks_add(const NnrtRank *r, const char *role) {
  int i = atomic_fetch_add(&n_threads, 1);
  if (i >= MOST_THREADS) return;
  threads[i].rank = r;
  threads[i].role = role;
  threads[i].tid = (pid_t)syscall(SYS_gettid);
}

void nnrt_stacks_tell(void (*tell)(void)) {
  tell_others = tell;
}

_Noreturn void nnrt_stacks_quit(void) {
  kill(getpid(), SIGQUIT);
  for (;;)
    pause();
}
