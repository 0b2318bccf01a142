// A crash is reported: by a fault of a kernel or of a library, or as a library gives up.
//
//     train_rank: error: this process has crashed: SIGSEGV, an access to memory that is not there
//
// oneDNN does not look at the result of some allocations, and the C++ library ends the process
// without naming it.  Other ranks report that a connection has closed, and this says why.  The
// signal then has its usual effect, a core file and an exit status.

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

static const struct {
  int signal;
  const char *text;
} crashes[] = {
    {SIGSEGV, "SIGSEGV, an access to memory that is not there"},
    {SIGILL, "SIGILL, an instruction that this processor does not have"},
    {SIGFPE, "SIGFPE, an integer division by zero"},
    {SIGABRT, "SIGABRT, the program or a library has given up"},
};

static char message[128]; // the part before the signal, made ahead
static size_t message_bytes;

// Only calls that are safe in a signal handler.
static void report(int number) {
  static const char hint[] = "\nhint: libraries may crash when there is too little memory\n";
  for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) {
    if (crashes[i].signal != number) continue;
    ssize_t ignored = write(STDERR_FILENO, message, message_bytes);
    ignored = write(STDERR_FILENO, crashes[i].text, strlen(crashes[i].text));
    ignored = write(STDERR_FILENO, hint, sizeof hint - 1);
    (void)ignored;
  }
  // SA_RESETHAND has restored the default: the fault is repeated, or the signal sent again.
  raise(number);
}

void nnrt_crash_watch(const char *program) {
  struct sigaction action = {.sa_handler = report, .sa_flags = SA_RESETHAND | SA_ONSTACK}, now;
  int n = snprintf(message, sizeof message, "%.80s: error: this process has crashed: ", program);
  message_bytes = n > 0 ? (size_t)n : 0;
  // A sanitizer has a report of its own.
  for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
    if (sigaction(crashes[i].signal, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
      sigaction(crashes[i].signal, &action, NULL);
}
