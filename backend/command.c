// Commands: their words, their text, and running them.  See build.h.

#include <ctype.h>
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

// Starts a command, its output appended to a file of the folder.  Returns its process; -1, having
// reported it: it did not start.
static pid_t start(Build *b, Command *c, const char *const *environment, const char *log_name) {
  // execvp needs a NULL at the end.
  vec_push(c->arena, &c->word, NULL);
  c->word.n--;
  // --verbose prints the command with its environment.
  if (b->o->verbose) {
    for (const char *const *e = environment; e && *e; e++)
      fprintf(stderr, "%s ", *e);
    fprintf(stderr, "%s\n", command_text(c));
  }
  pid_t child = temporary_fork_group();
  if (child < 0) diag_error(b->d, NULL, "cannot start '%s': %s", c->word.at[0], strerror(errno));
  // The child reports 126 or 127 as a shell does: not started, not found.
  if (child == 0) {
    int log =
        open(str_format(b->arena, "%s/%s", b->dir, log_name), O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 || chdir(b->dir)) _exit(126);
    for (const char *const *e = environment; e && *e; e++)
      putenv(arena_copy(b->arena, *e, strlen(*e) + 1));
    execvp(c->word.at[0], c->word.at);
    _exit(127);
  }
  return child;
}

bool command_start(Build *b, Command *c, const char *const *environment, int *out_status) {
  pid_t child = start(b, c, environment, "log");
  if (child < 0) return false;
  return temporary_wait(child, out_status) >= 0 ||
         diag_error(b->d, NULL, "cannot wait for '%s': %s", c->word.at[0], strerror(errno));
}

enum { FIRST_LINES = 5 }; // of its output, printed after a failure

// The output of a failed command.
typedef struct Output {
  const char *line[FIRST_LINES]; // the first ones, not empty
  int n;
  bool error_in_code; // an error in a generated file
} Output;

// Whether a compiler reports an error in a source of the folder: "program.c:3:1: error: …", or
// "kernels.cu(3): error: …" of nvcc. A fatal error is none: its causes are missing headers, full
// disks and other failures of the machine.
static bool is_error_in_code(const Build *b, const char *line) {
  size_t n = strcspn(line, ":(");
  struct stat st;
  if (!line[n] || !isdigit((unsigned char)line[n + 1]) || !strstr(line + n, "error: ") ||
      strstr(line + n, "fatal error: "))
    return false;
  const char *file = str_copy_n(b->arena, line, n);
  return (str_ends(file, ".c") || str_ends(file, ".cu")) &&
         stat(str_format(b->arena, "%s/%s", b->dir, file), &st) == 0;
}

// Reads the log of a command.
static Output read_output(const Build *b, const char *log) {
  Output out = {0};
  char *line = NULL;
  size_t capacity = 0;
  FILE *f = fopen(log, "r");
  while (f && getline(&line, &capacity, f) > 0) {
    line[strcspn(line, "\n")] = 0;
    if (*line && out.n < FIRST_LINES) out.line[out.n++] = str_copy(b->arena, line);
    out.error_in_code |= is_error_in_code(b, line);
  }
  free(line);
  if (f) fclose(f);
  return out;
}

// A command that runs.
typedef struct Job {
  Command *command;
  pid_t child;
  const char *log; // its file in the folder
  bool cached;     // its object has a key
  StrBuf key;
} Job;

// Appends the log of a command to the file log, and removes it.
static void append_log(const Build *b, const char *log) {
  char piece[1 << 12];
  size_t n;
  FILE *from = fopen(log, "rb");
  FILE *to = from ? fopen(str_format(b->arena, "%s/log", b->dir), "ab") : NULL;
  while (to && (n = fread(piece, 1, sizeof piece, from)) > 0)
    fwrite(piece, 1, n, to);
  if (to) fclose(to);
  if (from) fclose(from);
  unlink(log);
}

// Reports a failure of an ended command, if there is one.  Moves its log to the end of the file
// log, which is the user's if the folder is kept.
static bool command_ended(Build *b, const Command *c, int status, const char *log_name) {
  const char *name = c->word.at[0], *log = str_format(b->arena, "%s/%s", b->dir, log_name);
  Output out = read_output(b, log);
  append_log(b, log);
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 0) return true;
  if (code == 126 || code == 127) {
    diag_error(b->d, NULL, "cannot run the %s '%s'", c->tool, name);
    diag_hint(b->d, "install one, or name it in the environment variable %s", c->variable);
    return false;
  }
  if (WIFSIGNALED(status))
    return diag_error(b->d, NULL, "the %s '%s' was ended by a signal: %s", c->tool, name,
                      strsignal(WTERMSIG(status)));
  // The folder is kept if its contents help.
  if (out.error_in_code) {
    diag_error(b->d, NULL, "the generated code does not compile; this is a mistake of nnaot");
    diag_note(b->d, NULL, "the code, and the compiler's messages in 'log', are in '%s'", b->dir);
    diag_note(b->d, NULL, "the command was: %s", command_text(c));
    temporary_dir_keep();
    return false;
  }
  // The toolchain failed: its first lines tell the cause.
  diag_error(b->d, NULL, "the %s '%s' failed (exit status %d)%s", c->tool, name, code,
             out.n ? "" : " without a message");
  for (int i = 0; i < out.n; i++)
    diag_note(b->d, NULL, "%s", out.line[i]);
  diag_note(b->d, NULL, "the command was: %s", command_text(c));
  // A compiler that the system ended for its memory says "Killed signal terminated program cc1".
  for (int i = 0; i < out.n; i++)
    if (b->o->jobs > 1 && strstr(out.line[i], "Killed")) {
      diag_hint(b->d, "if there was too little memory: --jobs 1 compiles one file at a time");
      return false;
    }
  diag_hint(b->d, "repair the %s, or name another in the environment variable %s", c->tool,
            c->variable);
  return false;
}

bool commands_run(Build *b, Commands *all) {
  int n = 0, started = 0, ended = 0;
  Job *job = arena_array(b->arena, Job, all->at.n);
  for (int i = 0; i < all->at.n; i++) {
    job[n] = (Job){.command = &all->at.at[i], .log = str_format(b->arena, "log_%d", i)};
    job[n].cached = cache_key(b, job[n].command, &job[n].key);
    // An object in the cache is not made again.
    if (!job[n].cached || !cache_take(b, job[n].command, &job[n].key)) n++;
  }
  bool ok = true;
  while (ok && ended < n) {
    // The last command waits for all others.
    bool is_ready = started < n - 1 || ended == n - 1;
    int running = started - ended;
    if (started < n && is_ready && running < b->o->jobs && running < MAX_CHILDREN) {
      job[started].child = start(b, job[started].command, NULL, job[started].log);
      ok = job[started++].child > 0;
      continue;
    }
    int status, i = 0;
    pid_t child = temporary_wait(-1, &status);
    if (child < 0) {
      ok = diag_error(b->d, NULL, "cannot wait for '%s': %s", job[0].command->word.at[0],
                      strerror(errno));
      break;
    }
    while (i < started && job[i].child != child)
      i++;
    if (i == started) continue; // no command of these
    ended++;
    ok = command_ended(b, job[i].command, status, job[i].log);
    if (ok && job[i].cached) cache_put(b, job[i].command, &job[i].key);
  }
  if (ok) return true;
  // The messages of the others are of no use.
  temporary_stop_children();
  for (int i = 0; i < started; i++)
    unlink(str_format(b->arena, "%s/%s", b->dir, job[i].log));
  return false;
}
