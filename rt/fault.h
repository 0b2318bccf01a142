// The description of a fault, for the signal handlers of executables (crash.c) and of the compiler
// (tools/crash.c).  An overflow of the stack is an access near the stack pointer, to memory that
// the stack could not grow to; its handler needs an alternate stack.

#ifndef NNRT_FAULT_H
#define NNRT_FAULT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>
#include <unistd.h>

enum {
  NNRT_ALTERNATE_STACK = 64 << 10,
  NNRT_BELOW_STACK = 64 << 10 // of accesses that still count as the stack's
};

static const int nnrt_faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
enum { NNRT_FAULTS = sizeof nnrt_faults / sizeof *nnrt_faults };

static inline const char *nnrt_fault_text(int number) {
  switch (number) {
  case SIGSEGV: return "SIGSEGV, an access to memory that is not there";
  case SIGBUS: return "SIGBUS, an access to memory that the system cannot provide";
  case SIGILL: return "SIGILL, an instruction that this processor does not have";
  case SIGFPE: return "SIGFPE, an integer division by zero";
  default: return "SIGABRT, the program or a library has given up";
  }
}

// Whether another process has sent the signal: then no code of this one is at fault.
static inline bool nnrt_fault_sent(const siginfo_t *info) {
  bool sent = info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL;
  return sent && info->si_pid != getpid();
}

static inline const char *nnrt_fault_name(int number) {
  switch (number) {
  case SIGSEGV: return "SIGSEGV";
  case SIGBUS: return "SIGBUS";
  case SIGILL: return "SIGILL";
  case SIGFPE: return "SIGFPE";
  default: return "SIGABRT";
  }
}

// Returns the stack pointer of the code that was interrupted; `otherwise`, if it is unknown.
static inline uintptr_t nnrt_fault_stack(const void *context, uintptr_t otherwise) {
  const ucontext_t *c = context;
#if defined(__x86_64__)
  (void)otherwise;
  return (uintptr_t)c->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
  (void)otherwise;
  return (uintptr_t)c->uc_mcontext.sp;
#else
  (void)c;
  return otherwise;
#endif
}

// Whether a SIGSEGV is an overflow of the stack from `low` to `high`; a signal that a process has
// sent has no address.
static inline bool nnrt_fault_overflows(const siginfo_t *info, const void *context, uintptr_t low,
                                        uintptr_t high) {
  uintptr_t at = (uintptr_t)info->si_addr, sp = nnrt_fault_stack(context, low);
  return info->si_signo == SIGSEGV && info->si_code > 0 && sp < high && at < high &&
         at >= sp - NNRT_BELOW_STACK;
}

#endif
