// Commands: their words, their text, and running them.  See build.h.

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "build.h"
#include "temporary.h"

void command_add(Command *c, const char *word) {
  vec_push(c->arena, &c->word, arena_copy(c->arena, word, strlen(word) + 1));
}

void command_adds(Command *c, const char *words) {
  for (const char *p = words + strspn(words, " "); *p;) {
    size_t n = strcspn(p, " ");
    command_add(c, str_copy_n(c->arena, p, n));
    p += n + strspn(p + n, " ");
  }
}

const char *command_text(const Command *c) {
  StrBuf b = {.arena = c->arena};
  for (int i = 0; i < c->word.n; i++)
    strbuf_addf(&b, "%s%s", i ? " " : "", str_shell(c->arena, c->word.at[i]));
  return b.at;
}

bool command_start(Build *b, Command *c, const char *const *environment, int *out_status) {
  // execvp needs a NULL at the end.
  vec_push(c->arena, &c->word, NULL);
  c->word.n--;
  // --verbose prints the command with its environment.
  if (b->o->verbose) {
    for (const char *const *e = environment; e && *e; e++)
      fprintf(stderr, "%s ", *e);
    fprintf(stderr, "%s\n", command_text(c));
  }
  pid_t child = temporary_fork();
  if (child < 0)
    return diag_error(b->d, NULL, "cannot start '%s': %s", c->word.at[0], strerror(errno));
  // The child reports 126 or 127 as a shell does: not started, not found.
  if (child == 0) {
    int log = open(str_format(b->arena, "%s/log", b->dir), O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 || chdir(b->dir)) _exit(126);
    for (const char *const *e = environment; e && *e; e++)
      putenv(arena_copy(b->arena, *e, strlen(*e) + 1));
    execvp(c->word.at[0], c->word.at);
    _exit(127);
  }
  return temporary_wait(child, out_status) >= 0 ||
         diag_error(b->d, NULL, "cannot wait for '%s': %s", c->word.at[0], strerror(errno));
}

bool command_run(Build *b, Command *c) {
  int status;
  if (!command_start(b, c, NULL, &status)) return false;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  struct stat log;
  const char *name = c->word.at[0];
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    diag_error(b->d, NULL, "cannot run the %s '%s'", c->tool, name);
    diag_hint(b->d, "install one, or name it in the environment variable %s", c->variable);
  } else if (WIFSIGNALED(status)) {
    diag_error(b->d, NULL, "the %s '%s' was ended by a signal: %s", c->tool, name,
               strsignal(WTERMSIG(status)));
  } else if (stat(str_format(b->arena, "%s/log", b->dir), &log) || log.st_size == 0) {
    diag_error(b->d, NULL, "the %s '%s' failed, exit status %d, and does not say why", c->tool,
               name, WEXITSTATUS(status));
  } else {
    diag_error(b->d, NULL, "the generated code does not compile; this is a mistake of nnaot");
    diag_note(b->d, NULL, "the code, and the compiler's messages in 'log', are in '%s'", b->dir);
    diag_note(b->d, NULL, "the command was: %s", command_text(c));
    temporary_dir(NULL); // the folder is kept
  }
  return false;
}
