// Starts the reference of --check-against, and compares its program with this one.
//
// On each machine one process, the first of its ranks there, starts the reference as a child with
// the same data, seed and learning rate.  The values are in a file without a name in TMPDIR, which
// the other processes of the machine open through /proc.  The child reads the number of a step from
// a pipe, and ends when that is closed; so it never outlives the job.

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "against.h"
#include "comm.h"
#include "trailer.h"

// ---- the programs are of one model

// The value of a member of a flat object of JSON; its length in *n, or NULL.
static const char *member(const char *json, const char *name, int *n) {
  char key[64];
  snprintf(key, sizeof key, "\"%s\": ", name);
  const char *at = strstr(json, key);
  if (!at) return NULL;
  const char *value = at + strlen(key), *end = value;
  // A string ends at its quote, other values at a comma or bracket.
  bool text = *end == '"';
  for (end += text; *end && (text ? *end != '"' : !strchr(",]}", *end)); end++)
    if (text && *end == '\\' && end[1]) end++;
  *n = (int)(end - value) + (text && *end);
  return value;
}

// The differences between the command lines of two programs that were compiled from one model.
static bool differs(const ReferenceHead *h, const NnrtProgram *p, const char *path, Why *w) {
  static const struct {
    const char *member, *flag;
  } parts[] = {{"loss", "--loss"},           {"dtype", "--dtype"},
               {"optimizer", "--optimizer"}, {"clip_norm", "--clip-norm"},
               {"no_decay", "--no-decay"},   {"groups", "--group"},
               {"frozen", "--freeze"},       {"detached", "--detach"}};
  static const char hint[] = "hint: nnaot --check-with 1 makes one for exactly this program";
  const char *there = nnrt_base_name(h->model), *here = nnrt_base_name(p->model);
  if (strcmp(there, here) != 0)
    return !why(w, "'%s' is of another model, '%s', and this executable of '%s'\n%s", path, there,
                here, hint);
  if (h->batch != p->batch)
    return !why(w, "'%s' takes %lld rows a step, and this executable %lld\n%s", path,
                (long long)h->batch, (long long)p->batch, hint);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    int n = 0, m = 0;
    const char *x = member(h->describe, parts[i].member, &n);
    const char *y = member(p->describe, parts[i].member, &m);
    if (n == m && (!n || !memcmp(x, y, (size_t)n))) continue;
    return !why(w, "'%s' was compiled with %s %.*s, and this executable with %.*s\n%s", path,
                parts[i].flag, n ? n : 4, n ? x : "none", m ? m : 4, m ? y : "none", hint);
  }
  if (strcmp(h->version, p->version) != 0)
    return !why(w, "'%s' was compiled by nnaot %s, and this executable by %s\n%s", path, h->version,
                p->version, hint);
  return !why(
      w,
      "'%s' computes another program than the one that the plan '%s' distributes: the plans "
      "transform the model, or the weights were made otherwise\n%s",
      path, p->plan, hint);
}

static bool may_serve(const ReferenceHead *h, const NnrtProgram *p, const char *path, Why *w) {
  static const char hint[] = "hint: nnaot --check-with 1 makes one";
  if (h->ranks != 1)
    return why(w, "'%s' is for %d ranks, and the reference must be for one\n%s", path, h->ranks,
               hint);
  if (!h->has_values)
    return why(w,
               "nothing is known of the meaning of the values of '%s': its plan was not proved\n%s",
               path, hint);
  if (h->fingerprint != p->model_program->fingerprint || h->n != p->model_program->n_numbers)
    return !differs(h, p, path, w);
  if (h->micro_batches > 1)
    return why(w, "'%s' computes in %d micro-batches, and the reference must have whole values\n%s",
               path, h->micro_batches, hint);
  if (h->n_deferred)
    return why(w, "'%s' defers updates to the next step, and the reference must not\n%s", path,
               hint);
  if (strcmp(h->lr_schedule, p->lr_schedule) != 0)
    return why(w, "'%s' was compiled with --lr-schedule %s, and this executable with %s\n%s", path,
               h->lr_schedule, p->lr_schedule, hint);
  return true;
}

// ---- the child

typedef struct Words {
  char **at;
  int n;
} Words;

static void add_word(Words *words, char *word) {
  words->at = realloc(words->at, (size_t)(words->n + 2) * sizeof *words->at);
  if (!words->at) nnrt_must_alloc((size_t)-1);
  words->at[words->n++] = word;
  words->at[words->n] = NULL;
}

static void add_flag(Words *words, const char *name, const Flag *f) {
  if (!f->given) return;
  for (int i = 0; i < (f->n ? f->n : 1); i++) {
    add_word(words, nnrt_must_format("--%s", name));
    const char *value = f->n ? f->list[i] : f->s;
    if (value) add_word(words, nnrt_must_format("%s", value));
  }
}

// The flags that the training depends on; not those of output.
static Words child_words(const NnrtRun *run, const char *path, int from, int to, int file) {
  const Flags *f = &run->flags;
  Words words = {0};
  add_word(&words, nnrt_must_format("%s", path));
  add_flag(&words, "input", &f->input);
  add_flag(&words, "tokens", &f->tokens);
  add_flag(&words, "shuffle", &f->shuffle);
  add_flag(&words, "steps", &f->steps);
  add_flag(&words, "epochs", &f->epochs);
  add_flag(&words, "lr-steps", &f->lr_steps);
  add_flag(&words, "tf32", &f->tf32);
  add_flag(&words, "fpmath", &f->fpmath);
  add_flag(&words, "resume", &f->resume);
  if (f->resume.given) add_flag(&words, "checkpoint-dir", &f->checkpoint_dir);
  // The defaults of the reference may be others; a checkpoint has a seed of its own.
  add_word(&words, nnrt_must_format("--lr"));
  add_word(&words, nnrt_must_format("%.17g", f->lr.given ? f->lr.f : run->program->lr));
  if (f->seed.given || !f->resume.given) {
    add_word(&words, nnrt_must_format("--seed"));
    add_word(&words, nnrt_must_format("%lld", (long long)run->seed));
  }
  add_word(&words, nnrt_must_format("--check-write"));
  add_word(&words, nnrt_must_format("%d,%d,%d", from, to, file));
  return words;
}

// The environment without the variables of launchers: the child is no rank.
static Words child_environment(void) {
  static const char *const launchers[] = {
#define LAUNCHER(kind, rank, world, local_world, local_rank) rank, world, local_world, local_rank,
#include "launchers.def"
#undef LAUNCHER
  };
  Words words = {0};
  for (char **at = environ; *at; at++) {
    size_t n = strcspn(*at, "=");
    bool drop = false;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
      drop |= strlen(launchers[i]) == n && !strncmp(*at, launchers[i], n);
    if (!drop) add_word(&words, nnrt_must_format("%s", *at));
  }
  return words;
}

static void free_words(Words *words) {
  for (int i = 0; i < words->n; i++)
    free(words->at[i]);
  free(words->at);
}

static bool is_executable(const char *path, Why *w) {
  InFile f;
  NnrtTrailer end = {0};
  if (!nnrt_in_open(&f, path, w)) return false;
  if (f.bytes >= (int64_t)sizeof end)
    memcpy(&end, f.at + f.bytes - (int64_t)sizeof end, sizeof end);
  nnrt_in_close(&f);
  if (memcmp(end.magic, NNRT_TRAILER_MAGIC, sizeof end.magic) != 0)
    return why(w, "'%s' is no executable of nnaot\nhint: nnaot --check-with 1 makes a reference",
               path);
  if (access(path, X_OK) != 0) return why(w, "cannot run '%s': %s", path, strerror(errno));
  return true;
}

// A file without a name, for the values.
static int open_file(Why *w) {
  const char *folder = getenv("TMPDIR");
  char *path = nnrt_must_format("%s/nnaot-check-XXXXXX", folder && *folder ? folder : "/tmp");
  int fd = mkostemp(path, O_CLOEXEC);
  if (fd < 0)
    why(w, "cannot make a file '%s': %s\nhint: TMPDIR names another folder", path, strerror(errno));
  else
    unlink(path);
  free(path);
  return fd;
}

static bool spawn(NnrtRun *run, const char *path, int file, Why *w) {
  Reference *ref = run->reference;
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
    return why(w, "cannot make a pipe: %s", strerror(errno));
  Words words = child_words(run, path, in[0], out[1], file), environment = child_environment();
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  // Its own ends stay open; its progress is nobody's.  Ctrl-C is for the job, which ends it.
  const int keeps[] = {in[0], out[1], file};
  for (int i = 0; i < 3; i++)
    posix_spawn_file_actions_adddup2(&files, keeps[i], keeps[i]);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  int code = posix_spawn(&ref->child, path, &files, &attributes, words.at, environment.at);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  free_words(&words);
  free_words(&environment);
  close(in[0]);
  close(out[1]);
  ref->to = in[1];
  ref->from = out[0];
  return code == 0 || why(w, "cannot run '%s': %s", path, strerror(code));
}

// Waits for a word of the child.
static bool answer(const Reference *ref, int64_t *word) {
  ssize_t n;
  do
    n = read(ref->from, word, sizeof *word);
  while (n < 0 && errno == EINTR);
  return n == (ssize_t)sizeof *word;
}

static bool map_file(Reference *ref, int fd, int64_t bytes, Why *w) {
  ref->bytes = bytes;
  ref->base = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (ref->base == MAP_FAILED) return why(w, "cannot map the values: %s", strerror(errno));
  ref->head = (ReferenceHead *)(void *)ref->base;
  ref->kept = (Kept *)(void *)(ref->base + sizeof *ref->head);
  return memcmp(ref->head->magic, NNRT_REFERENCE_MAGIC, sizeof ref->head->magic) == 0 ||
         why(w, "the values of the reference are in the format of another nnaot");
}

// Starts the child; false if it cannot serve.
static bool lead(NnrtRun *run, int *out_file, int64_t *out_bytes, Why *w) {
  const char *path = run->flags.check_against.s;
  Reference *ref = run->reference;
  int64_t word = 1;
  if (!is_executable(path, w)) return false;
  int file = open_file(w);
  if (file < 0 || !spawn(run, path, file, w)) return false;
  if (!answer(ref, out_bytes))
    return why(w,
               "'%s' ended before its first step; a message above says why\n"
               "hint: if it lacks an option, compile it with the nnaot of this executable, as "
               "nnaot --check-with 1 does",
               path);
  if (!map_file(ref, file, *out_bytes, w) || !may_serve(ref->head, run->program, path, w))
    return false;
  *out_file = file;
  return write(ref->to, &word, sizeof word) == (ssize_t)sizeof word ||
         why(w, "cannot write to '%s': %s", path, strerror(errno));
}

// ---- all processes

// A number that processes of one machine share.
static int64_t machine(void) {
  struct utsname name;
  char boot[64] = "";
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    if (read(fd, boot, sizeof boot - 1) < 0) boot[0] = 0;
    close(fd);
  }
  uint64_t key = nnrt_xxh64(boot, (int64_t)sizeof boot, 1);
  if (uname(&name) == 0) key = nnrt_xxh64(name.nodename, (int64_t)strlen(name.nodename), key);
  return (int64_t)(key >> 1);
}

void nnrt_reference_start(NnrtRun *run) {
  static Reference reference;
  int world = run->launch.world > 1 ? run->launch.world : 1, me = run->launch.rank, first = me;
  Why w = {""};
  bool ok = true;
  run->reference = &reference;
  reference = (Reference){.to = -1, .from = -1};
  if (!run->program->model_program) {
    why(&w,
        "--check-against: nothing is known of the meaning of this executable's values: its plan "
        "was not proved, as of stages that update their weights in every micro-batch, or of "
        "--passes without shard");
    nnrt_ranks_end(run, w.text, 1);
  }
  // The first process of each machine leads.
  enum { MACHINE, PID, FILE_NUMBER, BYTES, WORDS };
  int64_t *of = nnrt_must_alloc((size_t)(world * WORDS) * sizeof *of);
  of[me * WORDS + MACHINE] = machine();
  nnrt_ranks_sum(run, of, world * WORDS);
  for (int i = me; i >= 0; i--)
    if (of[i * WORDS + MACHINE] == of[me * WORDS + MACHINE]) first = i;
  memset(of, 0, (size_t)(world * WORDS) * sizeof *of);
  reference.leads = first == me;
  int file = -1;
  int64_t bytes = 0;
  if (reference.leads) ok = lead(run, &file, &bytes, &w);
  nnrt_ranks_check(run, ok ? 0 : 1, w.text);
  // The others open the same file.
  if (reference.leads) {
    of[me * WORDS + PID] = getpid();
    of[me * WORDS + FILE_NUMBER] = file;
    of[me * WORDS + BYTES] = bytes;
  }
  nnrt_ranks_sum(run, of, world * WORDS);
  if (!reference.leads) {
    const int64_t *from = &of[first * WORDS];
    char *path =
        nnrt_must_format("/proc/%lld/fd/%lld", (long long)from[PID], (long long)from[FILE_NUMBER]);
    file = open(path, O_RDONLY | O_CLOEXEC);
    ok = file >= 0
             ? map_file(&reference, file, from[BYTES], &w)
             : why(&w, "cannot open the values of the reference, '%s': %s", path, strerror(errno));
    free(path);
  }
  nnrt_ranks_check(run, ok ? 0 : 1, w.text);
  free(of);
  close(file);
}

void nnrt_reference_step(NnrtRank *r, int64_t step) {
  const Reference *ref = r->run->reference;
  // All ranks have left the step before.  The reference may take longer than any timeout.
  nnrt_comm_begin_files(r);
  nnrt_comm_sum(r, &(int64_t){0}, 1);
  if (ref->leads && (r->run->launch.kind != LAUNCH_none || r->rank == 0)) {
    int64_t word;
    if (write(ref->to, &step, sizeof step) != (ssize_t)sizeof step || !answer(ref, &word)) {
      nnrt_say_error("'%s' ended in step %lld; its message above says why",
                     r->run->flags.check_against.s, (long long)step + 1);
      nnrt_end_job(1);
    }
  }
  nnrt_comm_end_files(r);
  r->against->steps++;
}

void nnrt_reference_end(NnrtRun *run) {
  const Reference *ref = run->reference;
  if (!ref->leads) return;
  // It ends when its pipe does.
  close(ref->to);
  waitpid(ref->child, NULL, 0);
}
