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
// Handlers call async-signal-safe functions only (signal_safe.h), and backtrace, which takes no
// lock once it has loaded libgcc.  So a thread that hangs in the dynamic linker, with its lock, has
// a stack like any other, and hinders none.  One that does not answer, as it is in the kernel, is
// named without a stack.

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "peers.h"
#include "signal_safe.h"

enum {
  MOST_THREADS = 1024,
  MOST_FRAMES = 64,
  OWN_FRAMES = 3,
  TEXT = 1 << 16,
  // Limits of the wait for a thread: for one, for all of them together, and then still for each.
  WAIT_MS = 5,
  PATIENCE_MS = 2000,
  PATIENCE_ALL_MS = 5000,
  PATIENCE_LEAST_MS = 20,
  PATIENCE_SECONDS = 30 // of the kernel, should this thread hang, too
};

typedef struct Thread {
  pid_t tid;
  const NnrtRank *rank;
  const char *role;
} Thread;

static Thread threads[MOST_THREADS];
static atomic_int n_threads, n_printed;
static atomic_int turn; // of the thread that is to print
static atomic_bool leading;
static void (*tell_others)(void);
static char speaker[128];
static char memory[TEXT]; // of the text of the thread that prints; they take turns

// Begins a line, with the program and the rank: those of other processes come at the same time.
static void add_speaker(SafeText *t) {
  nnrt_safe_add(t, speaker);
  nnrt_safe_add(t, ": ");
}

// The first line: the thread, and the operation.
static void add_head(SafeText *t, const Thread *of) {
  add_speaker(t);
  nnrt_safe_add_thread(t, of->rank, of->role);
}

static Thread *find_thread(pid_t tid) {
  int n = atomic_load(&n_threads);
  for (int i = 0; i < n && i < MOST_THREADS; i++)
    if (threads[i].tid == tid) return &threads[i];
  return NULL;
}

// As backtrace_symbols: "./train(nnrt_linear_f32+0x1f3)[0x55d0c3a0b1f3]".
static void add_frame(SafeText *t, uintptr_t at) {
  Mapping file;
  uintptr_t begin;
  // The address after a call may be the end of its function.
  const char *name = nnrt_function_at(at - 1, &begin);
  if (nnrt_mapping_at(at - 1, &file)) {
    // This program by the name that it was started with.
    nnrt_safe_add(t, file.is_this_program ? program_invocation_name : file.path);
    if (!name) begin = file.file;
  } else if (!name) {
    begin = 0;
  }
  nnrt_safe_add(t, "(");
  if (name) nnrt_safe_add(t, name);
  nnrt_safe_add(t, "+");
  nnrt_safe_add_hex(t, at - begin);
  nnrt_safe_add(t, ")[");
  nnrt_safe_add_hex(t, at);
  nnrt_safe_add(t, "]");
}

static void print_stack(void) {
  static const Thread unknown = {.role = "another thread"};
  void *frame[MOST_FRAMES];
  const Thread *of = find_thread((pid_t)syscall(SYS_gettid));
  if (!of) of = &unknown;
  SafeText t = {.at = memory, .size = sizeof memory};
  int n = backtrace(frame, MOST_FRAMES);
  add_head(&t, of);
  nnrt_safe_add(&t, "\n");
  for (int i = n > OWN_FRAMES ? OWN_FRAMES : 0; i < n; i++) {
    add_speaker(&t);
    nnrt_safe_add_rank(&t, of->rank);
    nnrt_safe_add(&t, ": ");
    add_frame(&t, (uintptr_t)frame[i]);
    nnrt_safe_add(&t, "\n");
  }
  nnrt_safe_print(&t);
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
  // One that comes late leaves the text to the next.
  if (atomic_load(&turn) == (int)syscall(SYS_gettid)) {
    print_stack();
    atomic_fetch_add(&n_printed, 1);
  }
  // The job ends: this thread does nothing more.
  for (;;)
    pause();
}

static void say_silent(const Thread *of) {
  char line[1024];
  SafeText t = {.at = line, .size = sizeof line};
  add_head(&t, of);
  nnrt_safe_add(&t, ": it does not answer\n");
  nnrt_safe_print(&t);
}

static void lead(int number) {
  if (atomic_exchange(&leading, true)) return;
  if (tell_others) tell_others();
  // The kernel ends the job if this thread hangs.
  signal(SIGALRM, SIG_DFL);
  alarm(PATIENCE_SECONDS);
  pid_t self = (pid_t)syscall(SYS_gettid);
  int n = atomic_load(&n_threads), left = PATIENCE_ALL_MS;
  for (int i = 0; i < n && i < MOST_THREADS; i++) {
    int before = atomic_load(&n_printed);
    if (threads[i].tid == self || !threads[i].tid) continue;
    atomic_store(&turn, threads[i].tid);
    if (syscall(SYS_tgkill, getpid(), threads[i].tid, inner_signal()) != 0) continue;
    // A thread in the kernel may come late.
    int most = left < PATIENCE_MS ? left : PATIENCE_MS, ms = 0;
    for (; ms < most && atomic_load(&n_printed) == before; ms += WAIT_MS)
      sleep_ms(WAIT_MS);
    left = left - ms > PATIENCE_LEAST_MS ? left - ms : PATIENCE_LEAST_MS;
    if (atomic_load(&n_printed) == before) say_silent(&threads[i]);
  }
  // Launchers end all processes when one ends: the others print meanwhile.
  if (tell_others) sleep_ms(1000);
  _exit(128 + number);
}

void nnrt_stacks_begin(void) {
  void *frame[4];
  backtrace(frame, 4); // loads libgcc
  struct sigaction quit = {.sa_handler = lead, .sa_flags = SA_RESTART};
  struct sigaction inner = {.sa_handler = follow, .sa_flags = SA_RESTART};
  sigaction(SIGQUIT, &quit, NULL);
  sigaction(inner_signal(), &inner, NULL);
}

void nnrt_stacks_as(const char *program) {
  strncpy(speaker, program, sizeof speaker - 1);
}

void nnrt_stacks_add(const NnrtRank *r, const char *role) {
  nnrt_crash_thread(r, role);
  pid_t tid = (pid_t)syscall(SYS_gettid);
  Thread *known = find_thread(tid);
  int i = known ? (int)(known - threads) : atomic_fetch_add(&n_threads, 1);
  if (i >= MOST_THREADS) return;
  threads[i].rank = r;
  threads[i].role = role;
  threads[i].tid = tid;
}

void nnrt_stacks_tell(void (*tell)(void)) {
  tell_others = tell;
}

_Noreturn void nnrt_stacks_quit(void) {
  kill(getpid(), SIGQUIT);
  for (;;)
    pause();
}
