// See crash.h.
//
//     nnaot: error: this program has crashed: SIGSEGV, an overflow of the stack
//     hint: raise the limit by ulimit -s, or report this with the model
//
// Some walks recurse as deep as a model or a text is nested.  The handler runs on a stack of its
// own, or an overflow of the stack could not be reported.

#include "crash.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rt/fault.h"

static const char *name;
static uintptr_t top; // of the stack

// Only calls that are safe in a signal handler.
static void say(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

static void report(int number, siginfo_t *info, void *context) {
  bool overflows = nnrt_fault_overflows(info, context, 0, top);
  say(name);
  if (nnrt_fault_sent(info)) {
    say(": error: this program was ended by ");
    say(nnrt_fault_name(number));
    say(", which another process has sent\n");
    raise(number);
    return;
  }
  say(": error: this program has crashed: ");
  say(overflows ? "SIGSEGV, an overflow of the stack" : nnrt_fault_text(number));
  say(overflows ? "\nhint: raise the limit by ulimit -s, or report this with the model\n"
                : "\nhint: this is a bug: report it with the model\n");
  // SA_RESETHAND has restored the default: the fault is repeated, or the signal sent again.
  raise(number);
}

void crash_watch(const char *program) {
  enum { STACK = 8 << 20 };
  static char memory[NNRT_ALTERNATE_STACK];
  const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
  const struct sigaction action = {.sa_sigaction = report,
                                   .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
  struct rlimit limit;
  struct sigaction now;
  stack_t old;
  name = program;
  top = (uintptr_t)__builtin_frame_address(0);
  if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < STACK) {
    limit.rlim_cur = limit.rlim_max < STACK ? limit.rlim_max : STACK;
    setrlimit(RLIMIT_STACK, &limit);
  }
  // A sanitizer has stacks and reports of its own; nnaot-eval has those of the runtime.
  if (sigaltstack(NULL, &old) == 0 && (old.ss_flags & SS_DISABLE)) sigaltstack(&stack, NULL);
  // An abort follows a message: of BUG, an assertion, or the C library.
  for (int i = 0; i < NNRT_FAULTS; i++)
    if (nnrt_faults[i] != SIGABRT && sigaction(nnrt_faults[i], NULL, &now) == 0 &&
        now.sa_handler == SIG_DFL)
      sigaction(nnrt_faults[i], &action, NULL);
}
