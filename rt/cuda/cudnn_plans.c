// Ahead-of-time plans of cuDNN: the table of a process, its text format, and the run that builds
// plans without a GPU.  See cudnn_plans.h.

#include "cudnn_plans.h"

#include <cudnn.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "runtime.h"

// The target of a plan: it runs only with this library version on GPUs like this one.
typedef struct Machine {
  int64_t cudnn;
  int sm, processors;
} Machine;

typedef struct Entry {
  Machine machine;
  const char *key, *json;
  int64_t key_bytes, bytes;
  struct Entry *next;
} Entry;

// Shared by the ranks of the process; `lock` guards the rest.
static struct {
  pthread_mutex_t lock;
  bool opened;
  Entry *first;
  // For nnrt_plans_say.
  int built, refused;
  double seconds;
  Why missing; // the reason for the lack of usable plans
  int without;
  char kernel[32];
  Why why_without;
} plans = {.lock = PTHREAD_MUTEX_INITIALIZER};

void nnrt_plans_lock(void) {
  pthread_mutex_lock(&plans.lock);
}

void nnrt_plans_unlock(void) {
  pthread_mutex_unlock(&plans.lock);
}

static Machine this_machine(void) {
  const NnrtGpu *g = nnrt_gpu();
  return (Machine){(int64_t)cudnnGetVersion(), g->sm, g->processors};
}

static bool same_machine(const Machine *a, const Machine *b) {
  return a->cudnn == b->cudnn && a->sm == b->sm && a->processors == b->processors;
}

static void add_entry(Entry e) {
  Entry *to = nnrt_must_alloc(sizeof *to);
  *to = e;
  to->next = plans.first;
  plans.first = to;
}

// -- Reading

// The rest of a text.
typedef struct Text {
  const char *at, *end;
} Text;

static bool take(Text *t, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0) return false;
  t->at += n;
  return true;
}

static bool take_number(Text *t, int64_t *out) {
  const char *from = t->at;
  // A damaged file may have any number of digits.
  for (*out = 0; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
    if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, *t->at - '0', out))
      return false;
  return t->at > from;
}

// Reads one section.  Plans for this machine are added to the table.
static bool read_section(Text *t, const Machine *here, Machine *found, Why *w) {
  const char *from = t->at;
  int64_t sm, processors, count;
  if (!take(t, "nnrt plans 1 cudnn ") || !take_number(t, &found->cudnn) || !take(t, " sm ") ||
      !take_number(t, &sm) || !take(t, " multiprocessors ") || !take_number(t, &processors) ||
      !take(t, " count ") || !take_number(t, &count) || !take(t, "\n") || sm > 10000 ||
      processors > 100000)
    return why(w, "its first line is damaged");
  found->sm = (int)sm;
  found->processors = (int)processors;
  // Plans for other machines are skipped.
  Entry *before = plans.first;
  bool wanted = same_machine(found, here), ok = true;
  for (int64_t i = 0; ok && i < count; i++) {
    // "key bytes", then that many bytes.
    Entry e = {.machine = *found, .key = t->at};
    while ((t->at < t->end) && *t->at > ' ' && *t->at < 127)
      t->at++;
    e.key_bytes = t->at - e.key;
    ok = e.key_bytes > 0 && take(t, " ") && take_number(t, &e.bytes) && take(t, "\n") &&
         e.bytes < t->end - t->at;
    if (!ok) break;
    e.json = t->at;
    t->at += e.bytes;
    ok = take(t, "\n");
    if (ok && wanted) add_entry(e);
  }
  // The checksum covers the section up to its last line.
  int64_t bytes = t->at - from;
  char end[32];
  snprintf(end, sizeof end, "end %016" PRIx64 "\n", nnrt_xxh64(from, bytes, 0));
  if (ok && take(t, end)) return true;
  while (plans.first != before) { // a damaged section is dropped completely
    Entry *next = plans.first->next;
    free(plans.first);
    plans.first = next;
  }
  return why(w, "its text or its checksum is damaged");
}

static void version_text(char text[32], int64_t cudnn) {
  snprintf(text, 32, "%d.%d.%d", (int)(cudnn / 10000), (int)(cudnn / 100 % 100),
           (int)(cudnn % 100));
}

// Reads the plans of the executable.
static void open_plans(void) {
  Machine here = this_machine(), found = {0};
  int64_t bytes = 0;
  const char *at = nnrt_payload_plans(&bytes);
  plans.opened = true;
  if (!at || bytes == 0) {
    why(&plans.missing, "this executable has none");
    return;
  }
  Text t = {at, at + bytes};
  Entry *before = plans.first;
  Why gpus = {""}, w;
  while (t.at < t.end) {
    char version[32];
    if (!read_section(&t, &here, &found, &w)) {
      nnrt_say_warning("the plans of cudnn in this executable are not used: %s", w.text);
      why(&plans.missing, "those of this executable are damaged");
      return;
    }
    // The other machines are listed in a later message.
    version_text(version, found.cudnn);
    why(&gpus, "%scudnn %s on sm_%d with %d multiprocessors; ", gpus.text, version, found.sm,
        found.processors);
  }
  // There are plans, but none for this machine.
  if (plans.first == before) {
    char version[32];
    version_text(version, here.cudnn);
    why(&plans.missing,
        "those of this executable are for %sthis is cudnn %s on sm_%d with %d multiprocessors",
        gpus.text, version, here.sm, here.processors);
  }
}

const char *nnrt_plans_find(const char *key, int64_t *bytes) {
  if (!plans.opened && !nnrt_gpu()->planning) open_plans();
  Machine here = this_machine();
  int64_t n = (int64_t)strlen(key);
  // A plan runs only on the machine that it was made for.
  for (const Entry *e = plans.first; e; e = e->next)
    if (e->key_bytes == n && memcmp(e->key, key, (size_t)n) == 0 &&
        same_machine(&e->machine, &here)) {
      *bytes = e->bytes;
      return e->json;
    }
  return NULL;
}

void nnrt_plans_add(const char *key, const char *json, int64_t bytes) {
  char *text = nnrt_must_alloc((size_t)bytes + 1);
  memcpy(text, json, (size_t)bytes);
  add_entry((Entry){.machine = this_machine(),
                    .key = nnrt_must_format("%s", key),
                    .key_bytes = (int64_t)strlen(key),
                    .json = text,
                    .bytes = bytes});
}

// -- Messages

void nnrt_plans_built(double seconds, bool refused) {
  plans.built++;
  plans.refused += refused;
  plans.seconds += seconds;
}

void nnrt_plans_without(const char *kernel) {
  nnrt_plans_lock();
  if (plans.without++ == 0) {
    snprintf(plans.kernel, sizeof plans.kernel, "%s", kernel);
    why(&plans.why_without, "%s", nnrt_error_detail());
  }
  nnrt_plans_unlock();
}

void nnrt_plans_say(int rank) {
  if (rank != 0) return;
  nnrt_plans_lock();
  if (plans.built > 0)
    nnrt_say_note("%d plans of cudnn were built at start, in %.1f s: %s", plans.built,
                  plans.seconds,
                  plans.refused           ? "cudnn does not take those of this executable"
                  : plans.missing.text[0] ? plans.missing.text
                                          : "this executable lacks them");
  if (plans.without > 0)
    nnrt_say_note("%d kernels do without cudnn, slower; the first is %s: %s", plans.without,
                  plans.kernel, plans.why_without.text);
  // A plan is counted in one message only.
  plans.built = plans.refused = plans.without = 0;
  plans.seconds = 0;
  nnrt_plans_unlock();
}

// -- Planning

// The number after "name": in the properties of a GPU, in cuDNN's JSON; -1: there is none.
static int64_t property(const char *json, const char *name) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\"", name);
  const char *at = strstr(json, quoted);
  if (!at) return -1;
  // The value follows a colon.
  at += strlen(quoted);
  at += strspn(at, " \t\r\n:");
  Text t = {at, at + strlen(at)};
  int64_t x;
  return take_number(&t, &x) ? x : -1;
}

static bool write_plans(const char *path, Why *w) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *f = open_memstream(&text, &bytes);
  Machine here = this_machine();
  int count = 0;
  if (!f) return why(w, "out of memory");
  for (const Entry *e = plans.first; e; e = e->next)
    count++;
  // An empty file says that no kernel has a plan.
  if (count > 0)
    fprintf(f, "nnrt plans 1 cudnn %" PRId64 " sm %d multiprocessors %d count %d\n", here.cudnn,
            here.sm, here.processors, count);
  for (const Entry *e = plans.first; e; e = e->next) {
    fprintf(f, "%s %" PRId64 "\n", e->key, e->bytes);
    fwrite(e->json, 1, (size_t)e->bytes, f);
    fputc('\n', f);
  }
  // The checksum is of the text so far.
  if (fflush(f) != 0) nnrt_must_close(f, &(char *){NULL}); // reports the lack of memory
  if (count > 0) fprintf(f, "end %016" PRIx64 "\n", nnrt_xxh64(text, (int64_t)bytes, 0));
  nnrt_must_close(f, &text);
  // The file is written completely or not at all.
  OutFile out;
  bool ok = nnrt_out_begin(&out, path, w);
  if (ok && !nnrt_out_write(&out, text, (int64_t)bytes, w)) {
    nnrt_out_abandon(&out);
    ok = false;
  }
  ok = ok && nnrt_out_commit(&out, w);
  free(text);
  return ok;
}

// Ranks of one class run the same calls on the same shapes.
static void plan_code(const NnrtProgram *p, const NnrtRankProgram *code) {
  int op = -1;
  NnrtRank r = {.ranks = p->ranks, .program = p, .code = code, .op = &op};
  while (r.rank + 1 < p->ranks && nnrt_code_of(p, r.rank) != code)
    r.rank++;
  nnrt_set_coords(&r);
  // One more, since a program may have none.
  r.prep = nnrt_must_alloc((size_t)(p->n_prep + 1) * sizeof *r.prep);
  r.constant = nnrt_must_alloc((size_t)(p->n_constants + 1) * sizeof *r.constant);
  // The rank's own initialisation prepares all its kernels, which builds the plans.
  if (code->init) code->init(&r);
  for (int i = 0; i < p->n_prep; i++)
    nnrt_prep_free(r.prep[i]);
  free(r.prep);
  free(r.constant);
  free(r.coord);
}

int nnrt_plans_main(const NnrtProgram *p) {
  const char *device = getenv("NNRT_PLAN_DEVICE"), *path = getenv("NNRT_PLAN_OUT");
  Why w = {0};
  InFile in;
  if (!device || !path) {
    nnrt_say_error("planning needs both NNRT_PLAN_DEVICE and NNRT_PLAN_OUT");
    return 1;
  }
  // Without libcuda.so.1 cuDNN would refuse every graph, and no plan would be built without a
  // message.
  if (!dlopen("libcuda.so.1", RTLD_LAZY)) {
    nnrt_say_error("planning needs libcuda.so.1, of a driver or nnaot's stand-in: %s", dlerror());
    return 1;
  }
  if (!nnrt_in_open(&in, device, &w)) {
    nnrt_say_error("%s", w.text);
    return 1;
  }
  // The file has the properties of the GPU to plan for.
  NnrtGpu gpu = {.index = -1};
  gpu.planning = nnrt_must_format("%.*s", (int)in.bytes, (const char *)in.at);
  nnrt_in_close(&in);
  gpu.sm = (int)property(gpu.planning, "deviceVer") / 10;
  gpu.processors = (int)property(gpu.planning, "multiProcessorCount");
  if (gpu.planning[0] != '{' || gpu.sm <= 0 || gpu.processors <= 0) {
    nnrt_say_error("%s: no properties of a gpu: deviceVer and multiProcessorCount are missing",
                   device);
    return 1;
  }
  // Each class of ranks prepares its kernels.
  nnrt_gpu_use(&gpu);
  for (int i = 0; i < p->n_codes; i++)
    plan_code(p, &p->code[i]);
  bool ok = write_plans(path, &w);
  if (!ok) nnrt_say_error("%s", w.text);
  return ok ? 0 : 1;
}
