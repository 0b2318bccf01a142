// Reports an error and ends the job.
//
//     train_rank: error: no such input 'y'; the model has x, labels
//     train_rank: rank 1, step 12: error: cross_entropy  m.onnx:/loss: label 11 is not in 0..9
//
// A training job has nothing to recover to.  A rank that fails ends its process; the launcher, or
// the closed connections, then end the other processes.  No exit handlers run, since other ranks
// are still in the middle of their work.

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"
#include "utf8.h"

static const char *speaker = "train_rank";
static char speaking_rank[32];
static char last_error[1024];
static void (*before_end)(int status, const char *error);
static atomic_flag failing = ATOMIC_FLAG_INIT;
static _Thread_local const NnrtRank *here; // the rank of this thread; NULL: none
static _Thread_local char detail[2048];
static _Thread_local const char *fail_hint;
static _Thread_local bool has_found;
static _Thread_local int64_t found; // the value that was out of range

void nnrt_say_as(const char *program, int rank, bool several) {
  speaker = program;
  speaking_rank[0] = 0;
  if (several) snprintf(speaking_rank, sizeof speaking_rank, " rank %d:", rank);
}

static void say(const char *kind, const char *fmt, va_list args) {
  char line[2048];
  int n = snprintf(line, sizeof line - 1, "%.200s:%s %s: ", speaker, speaking_rank, kind);
  int m = vsnprintf(line + n, sizeof line - 1 - (size_t)n, fmt, args);
  n = m < 0 ? n : n + m;
  // A long message is cut off, and still ends its line.
  if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
  line[n] = 0;
  // Names may hold any bytes.  Of the message itself are lines and tabs.
  char shown[4 * sizeof line + 1];
  n = 0;
  for (const char *at = line; *at;)
    if (*at == '\n' || *at == '\t')
      shown[n++] = *at++;
    else
      n += nnrt_utf8_shown(&at, shown + n);
  shown[n++] = '\n';
  nnrt_progress_end();
  fflush(stdout);
  // In one write, so that lines of several processes do not mix.
  ssize_t done = 0;
  while (done < n) {
    ssize_t step = write(STDERR_FILENO, shown + done, (size_t)(n - done));
    if (step > 0)
      done += step;
    else if (step < 0 && errno == EAGAIN) // a pipe that does not block is full for a moment
      poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, -1);
    else if (step == 0 || errno != EINTR)
      break;
  }
}

void nnrt_say_error(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(last_error, sizeof last_error, fmt, args);
  last_error[strcspn(last_error, "\n")] = 0;
  va_end(args);
  va_start(args, fmt);
  say("error", fmt, args);
  va_end(args);
}

void nnrt_say_warning(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  say("warning", fmt, args);
  va_end(args);
}

void nnrt_say_note(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  say("note", fmt, args);
  va_end(args);
}

void nnrt_put_shown(FILE *out, const char *text) {
  char shown[UTF8_SHOWN];
  while (*text)
    fwrite(shown, 1, (size_t)nnrt_utf8_shown(&text, shown), out);
}

bool nnrt_why(Why *w, const char *fmt, ...) {
  // The arguments may be an earlier text of the same Why.
  char text[sizeof w->text];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  memcpy(w->text, text, sizeof text);
  return false;
}

void nnrt_before_end(void (*call)(int status, const char *error)) {
  before_end = call;
}

_Noreturn void nnrt_end_job(int status) {
  // An error on the way ends the job here again.
  void (*call)(int status, const char *error) = before_end;
  before_end = NULL;
  if (status && call) call(status, *last_error ? last_error : NULL);
  nnrt_checkpoint_unlock();
  fflush(stdout);
  fflush(stderr);
  _exit(status);
}

void nnrt_say_here(const NnrtRank *r) {
  here = r;
}

// The first of several ranks that fail ends the job: the others fail because of it, or in the same
// way.
static void fail_first(void) {
  static _Thread_local bool failing_here;
  // A failure while this thread reports one does not wait for itself.
  if (!failing_here && atomic_flag_test_and_set(&failing))
    for (;;)
      pause();
  failing_here = true;
}

static _Noreturn void out_of_memory(const char *what) {
  char where[96] = "";
  fail_first();
  if (here && here->ranks > 1)
    snprintf(where, sizeof where, "rank %d, step %lld: ", here->rank, (long long)here->step + 1);
  // The message has the rank already.
  if (*where) speaking_rank[0] = 0;
  nnrt_say_error("%sout of memory: %s\n" NNRT_LIMIT_HINT, where, what);
  nnrt_end_job(1);
}

_Noreturn void nnrt_out_of_memory(size_t bytes) {
  char what[64];
  snprintf(what, sizeof what, "%zu bytes", bytes);
  out_of_memory(what);
}

void *nnrt_must_alloc(size_t n) {
  // No object has this size: the caller had no memory for one of another size.
  if (n == (size_t)-1) out_of_memory("for a text or a list");
  void *p = calloc(1, n ? n : 1);
  if (!p) nnrt_out_of_memory(n);
  return p;
}

bool nnrt_why_thread(Why *w, const char *thread, int code) {
  size_t stack = 0;
  pthread_attr_t attr;
  if (pthread_getattr_default_np(&attr) == 0) {
    pthread_attr_getstacksize(&attr, &stack);
    pthread_attr_destroy(&attr);
  }
  return why(w, "cannot start %s, which needs %s for its stack: %s\n" NNRT_LIMIT_HINT, thread,
             nnrt_amount((double)stack).text, strerror(code));
}

// A library's exception that nobody handles, such as std::bad_alloc of oneDNN.
static void library_failed(void) {
  // std::type_info: the table of virtual functions, and the name.
  const struct {
    void *functions;
    const char *name;
  } *type = NULL;
  void *(*current)(void) =
      (void *(*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "__cxa_current_exception_type");
  if (current) type = current();
  const char *name = type && type->name ? type->name : "unknown";
  if (strcmp(name, "St9bad_alloc") == 0) out_of_memory("a library got none");
  fail_first();
  nnrt_say_error("a library ended with an exception of the type '%s'", name);
  nnrt_end_job(1);
}

void nnrt_must_close(FILE *stream, char *const *text) {
  bool ok = !ferror(stream);
  // The C library leaves no text if there is no memory for its last change of size.
  if (fclose(stream) != 0 || !ok || !*text) out_of_memory("for a text");
}

void nnrt_catch_exceptions(void) {
  // std::set_terminate, if the program or a library of it is in C++.
  void (*set)(void (*)(void)) =
      (void (*)(void (*)(void)))(uintptr_t)dlsym(RTLD_DEFAULT, "_ZSt13set_terminatePFvvE");
  if (set) set(library_failed);
}

static char *must_vformat(const char *fmt, va_list args) {
  char *text;
  if (vasprintf(&text, fmt, args) >= 0) return text;
  out_of_memory("for a text");
}

char *nnrt_must_format(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  char *text = must_vformat(fmt, args);
  va_end(args);
  return text;
}

char *nnrt_must_append(char *text, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  char *more = must_vformat(fmt, args);
  va_end(args);
  // The arguments may point into `text`: it is freed last.
  char *both = nnrt_must_format("%s%s", text ? text : "", more);
  free(text);
  free(more);
  return both;
}

int nnrt_error(int code, const char *fmt, ...) {
  // The arguments may be the previous text.
  char text[sizeof detail];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  memcpy(detail, text, sizeof text);
  return code;
}

int nnrt_found(enum NnrtFound kind, long long value, long long place, long long least,
               long long limit) {
  has_found = true;
  found = value;
  // The value that PyTorch ignores by default.
  if (kind == FOUND_label && value == -100)
    fail_hint = "to ignore such labels, as PyTorch does, compile with ignore_index=-100 in --loss";
  if (kind == FOUND_length) fail_hint = "a length counts the time steps of its row";
  if (kind == FOUND_capacity) {
    fail_hint =
        "give the experts a larger capacity, as in --plan ep:200, or none, as in --plan ep, "
        "which no step exceeds";
    return nnrt_error(NNRT_CAPACITY,
                      "more than %lld rows of group %lld go to part %lld of the experts", limit - 1,
                      place, value);
  }
  if (kind == FOUND_count) {
    fail_hint = "compile with a larger --bound for this operator";
    return nnrt_error(NNRT_CAPACITY,
                      "%lld elements of row %lld are selected, and the bound is %lld", value, place,
                      limit - 1);
  }
  return nnrt_error(NNRT_INDEX,
                    kind == FOUND_label    ? "label %lld of row %lld is not in %lld..%lld"
                    : kind == FOUND_length ? "length %lld of row %lld is not in %lld..%lld"
                                           : "index %lld (number %lld) is not in %lld..%lld",
                    value, place, least, limit - 1);
}

const char *nnrt_error_detail(void) {
  return detail;
}

static const char *code_text(int code) {
  switch (code) {
  case NNRT_INDEX: return "an index is out of range";
  case NNRT_LIBRARY: return "a library call failed";
  case NNRT_COMM: return "communication failed";
  case NNRT_MEMORY: return "out of memory";
  case NNRT_UNSUPPORTED: return "unsupported";
  case NNRT_VALUE: return "not a number";
  case NNRT_CAPACITY: return "a capacity is exceeded";
  }
  return "failed";
}

void nnrt_fail_hint(const char *hint) {
  fail_hint = hint;
}

static void say_failed(const NnrtRank *r, int first, int last, int code) {
  // The failing operation, or operations from `first` to `last`.
  const NnrtGraph *g = r->graph;
  char *op;
  if (!g)
    op = nnrt_must_format("the start");
  else if (first < 0 || last >= g->n_ops || last < first)
    op = nnrt_must_format("between operations");
  else if (first == last)
    op = nnrt_must_format("%s", g->ops[first]);
  else
    op = nnrt_must_format("one of the operations from '%s' to '%s'", g->ops[first], g->ops[last]);
  // An index comes from the data: name the row that holds it.
  char *notes = nnrt_data_find(code == NNRT_INDEX && has_found ? r->fed : NULL, found);
  char where[96] = "";
  if (r->ranks > 1) snprintf(where, sizeof where, "rank %d, ", r->rank);
  // The message has the rank already, with its step.
  speaking_rank[0] = 0;
  nnrt_say_error("%sstep %lld: %s: %s%s%s%s%s%s", where, (long long)r->step + 1, op,
                 code_text(code), detail[0] ? ": " : "", detail, notes, fail_hint ? "\nhint: " : "",
                 fail_hint ? fail_hint : "");
  free(op);
  free(notes);
}

void nnrt_say_failed(const NnrtRank *r, int i, int code) {
  say_failed(r, i, i, code);
}

_Noreturn void nnrt_fail(NnrtRank *r, int i, int code) {
  nnrt_fail_between(r, i, i, code);
}

_Noreturn void nnrt_fail_between(NnrtRank *r, int first, int last, int code) {
  fail_first();
  say_failed(r, first, last, code);
  nnrt_end_job(1);
}
