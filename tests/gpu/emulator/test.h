// Shared by the emulator's own tests.  C and C++.

#ifndef EMULATOR_TEST_H
#define EMULATOR_TEST_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                      \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

#define CHECK_IS(call, wanted)                                                                     \
  do {                                                                                             \
    int code_ = (int)(call);                                                                       \
    if (code_ != (int)(wanted)) {                                                                  \
      fprintf(stderr, "%s:%d: %s is %d, not %s\n", __FILE__, __LINE__, #call, code_, #wanted);     \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

#define OK(call) CHECK_IS(call, 0)

// Checks that a function, run in a process of its own, dies of a signal with `words` on stderr.
static inline void check_dies(void (*what)(void), const char *words) {
  int out[2];
  CHECK(pipe(out) == 0);
  fflush(stderr);
  pid_t child = fork();
  if (child == 0) {
    dup2(out[1], 2);
    what();
    exit(0);
  }
  close(out[1]);
  char text[4096];
  size_t n = 0;
  for (ssize_t got; n < sizeof text - 1 && (got = read(out[0], text + n, sizeof text - 1 - n)) > 0;)
    n += (size_t)got;
  text[n] = 0;
  close(out[0]);
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  if (strstr(text, words) && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) return;
  fprintf(stderr, "status %d, and it said \"%s\", not \"%s\"\n", status, text, words);
  exit(1);
}

#endif
