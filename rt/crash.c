// A crash is reported: by a fault of a kernel or of a library, or as a library gives up.
//
//     train: error: this process has crashed: SIGSEGV, an overflow of the stack, of 8192 KiB
//     note: rank 1 on host7 (pid 4711), its own thread, in 'linear  mlp.onnx:/fc1' of step 12
//     hint: raise the limit by ulimit -s; OMP_STACKSIZE is that of threads of OpenMP
//
// oneDNN does not look at the result of some allocations, and the C++ library ends the process
// without naming it.  Other ranks report that a connection has closed, and this says why.  The
// signal then has its usual effect, a core file and an exit status.
//
// The handler runs on a stack of its own, an alternate one of the thread, or an overflow of the
// stack could not be reported.  Threads of libraries have none, other than OpenMP's.
//
// SIGBUS is an access to a mapped file beyond its end, or a disk that cannot be read: the file at
// the address tells which.  For a file of data, that is an error of the user's, with status 1.

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fault.h"
#include "signal_safe.h"

static bool watched[NNRT_FAULTS];

enum { GUARD = 4096 };

// The thread, and the bounds of its stack; high 0: unknown.
typedef struct Own {
  const NnrtRank *rank;
  const char *role; // NULL: unknown
  uintptr_t low, high;
} Own;

static _Thread_local Own own;
static char speaker[96];
static atomic_bool reporting;

// ---- the report

static bool starts(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

// A file that is mapped at an address which the system cannot provide.
static void add_file(SafeText *t, const Mapping *file) {
  nnrt_safe_add(t, "'");
  nnrt_safe_add(t, file->path);
  nnrt_safe_add(t, "'");
}

// Adds the lines after the first.
static void add_notes(SafeText *t, const char *hint) {
  if (own.role) {
    nnrt_safe_add(t, "\nnote: ");
    nnrt_safe_add_thread(t, own.rank, own.role);
  }
  nnrt_safe_add(t, "\nhint: ");
  nnrt_safe_add(t, hint);
  nnrt_safe_add(t, "\n");
}

// Returns whether the fault is of a file of data.
static bool add_bus_error(SafeText *t, const Mapping *file) {
  bool in_memory = starts(file->path, "/memfd:") || starts(file->path, "/dev/shm/");
  bool data = file->path[0] == '/' && !in_memory && !file->is_this_program;
  if (!data) nnrt_safe_add(t, "this process has crashed: ");
  if (data) {
    add_file(t, file);
    nnrt_safe_add(t, " was truncated while it was in use, or its disk cannot be read");
    add_notes(t, "write a new file, and rename it to the old name");
  } else if (in_memory) {
    nnrt_safe_add(t, "SIGBUS, there is no memory for the memory file ");
    add_file(t, file);
    add_notes(t, "/dev/shm or the memory of this machine, or of this container, is full");
  } else if (file->is_this_program) {
    nnrt_safe_add(t, "SIGBUS, its executable ");
    add_file(t, file);
    nnrt_safe_add(t, " was overwritten or truncated while it ran, or its disk cannot be read");
    add_notes(t, "write a new executable, and rename it to the old name");
  } else {
    nnrt_safe_add(t, nnrt_fault_text(SIGBUS));
    add_notes(t, "the memory of this machine, or of this container, may be full or damaged");
  }
  return data;
}

static void report(int number, siginfo_t *info, void *context) {
  // The first thread reports; the others wait for the end.
  if (atomic_exchange(&reporting, true))
    for (;;)
      pause();
  static char memory[8192];
  SafeText t = {.at = memory, .size = sizeof memory};
  uintptr_t at = (uintptr_t)info->si_addr;
  // A signal that a process has sent has no address.
  bool fault = info->si_code > 0, data = false;
  Mapping file;
  nnrt_safe_add(&t, speaker);
  nnrt_safe_add(&t, ": error: ");
  if (nnrt_fault_sent(info)) {
    nnrt_safe_add(&t, "this process was ended by ");
    nnrt_safe_add(&t, nnrt_fault_name(number));
    nnrt_safe_add(&t, ", which process ");
    nnrt_safe_add_number(&t, info->si_pid);
    nnrt_safe_add(&t, " has sent");
    add_notes(&t, "a user, a launcher or a scheduler sends signals; SIGTERM ends a run with its "
                  "outputs saved");
  } else if (fault && number == SIGBUS && nnrt_mapping_at(at, &file)) {
    data = add_bus_error(&t, &file);
  } else if (own.high && nnrt_fault_overflows(info, context, own.low, own.high)) {
    nnrt_safe_add(&t, "this process has crashed: SIGSEGV, an overflow of the stack, of ");
    nnrt_safe_add_number(&t, (long long)(own.high - own.low) >> 10);
    nnrt_safe_add(&t, " KiB");
    add_notes(&t, "raise the limit by ulimit -s; OMP_STACKSIZE is that of threads of OpenMP");
  } else {
    nnrt_safe_add(&t, "this process has crashed: ");
    nnrt_safe_add(&t, nnrt_fault_text(number));
    add_notes(&t, "libraries may crash when there is too little memory");
  }
  nnrt_safe_print(&t);
  if (data) _exit(1);
  // The fault is repeated as the handler returns, or the signal sent again.
  signal(number, SIG_DFL);
  raise(number);
}

// ---- the handlers

static void watch(void) {
  struct sigaction action = {.sa_sigaction = report, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  for (int i = 0; i < NNRT_FAULTS; i++)
    if (watched[i]) sigaction(nnrt_faults[i], &action, NULL);
}

void nnrt_crash_watch(const char *program) {
  static char memory[NNRT_ALTERNATE_STACK];
  const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
  stack_t old;
  struct sigaction now;
  struct rlimit limit;
  strncpy(speaker, program, sizeof speaker - 1);
  // A sanitizer has stacks and reports of its own.
  if (sigaltstack(NULL, &old) == 0 && (old.ss_flags & SS_DISABLE)) sigaltstack(&stack, NULL);
  for (int i = 0; i < NNRT_FAULTS; i++)
    watched[i] = sigaction(nnrt_faults[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL;
  watch();
  own = (Own){.role = "the main thread", .high = (uintptr_t)__builtin_frame_address(0)};
  bool known = getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < own.high;
  own.low = known ? own.high - limit.rlim_cur : 0;
}

void nnrt_crash_watch_again(void) {
  // Of a file of data it is an error of the user's, also under a sanitizer.
  for (int i = 0; i < NNRT_FAULTS; i++)
    watched[i] |= nnrt_faults[i] == SIGBUS;
  watch();
}

// ---- threads

static pthread_key_t stacks; // the alternate stack of each thread but the main one

static void free_stack(void *at) {
  const stack_t none = {.ss_flags = SS_DISABLE};
  sigaltstack(&none, NULL);
  munmap(at, GUARD + NNRT_ALTERNATE_STACK);
}

static void make_key(void) {
  pthread_key_create(&stacks, free_stack);
}

// Without memory for one, the thread is as those of libraries.
static void make_stack(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  stack_t old;
  pthread_once(&once, make_key);
  if (sigaltstack(NULL, &old) != 0 || !(old.ss_flags & SS_DISABLE)) return;
  char *at = mmap(NULL, GUARD + NNRT_ALTERNATE_STACK, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (at == MAP_FAILED) return;
  mprotect(at, GUARD, PROT_NONE);
  const stack_t stack = {.ss_sp = at + GUARD, .ss_size = NNRT_ALTERNATE_STACK};
  if (pthread_setspecific(stacks, at) == 0 && sigaltstack(&stack, NULL) == 0) return;
  pthread_setspecific(stacks, NULL);
  munmap(at, GUARD + NNRT_ALTERNATE_STACK);
}

void nnrt_crash_thread(const NnrtRank *r, const char *role) {
  own.rank = r;
  own.role = role;
  if (own.high) return; // the bounds are known, and there is an alternate stack
  pthread_attr_t attributes;
  void *low;
  size_t bytes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    if (pthread_attr_getstack(&attributes, &low, &bytes) == 0) {
      own.low = (uintptr_t)low;
      own.high = (uintptr_t)low + bytes;
    }
    pthread_attr_destroy(&attributes);
  }
  make_stack();
}
