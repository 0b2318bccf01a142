// The parts of this executable's file (trailer.h): the program itself, and the payload, which are
// initial weights and the model for --export.
//
// The file is mapped, so only the pages that are read take memory, and those of a weight only until
// ranks have copied it.  strip and objcopy cut off all but the program.
//
// The checksums of the trailer and of the program are compared first, in a constructor: a damaged
// program ends before its code or its tables are used.  Those of the payload are compared when a
// rank reads its part of a weight, each block once per process.  Plans have checksums of their own
// (cuda/cudnn_plans.h).
//
// Not covered: the kernel and the dynamic linker run before.  They read the headers and tables of
// the program, and run the functions that choose kernels for the machine's instructions, and the
// few instructions of preinit.c.  If these are damaged they refuse the file, or the process
// crashes.

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "runtime.h"
#include "trailer.h"

// The parts with checksums, in the order of the file.
enum { PROGRAM, PAYLOAD, PLANS, N_PARTS };

typedef struct FilePart {
  int64_t at, bytes;
  const uint64_t *sum; // of each block
} FilePart;

static struct {
  InFile file;
  bool there, sound; // the trailer; numbers of a trailer that is not sound may be anything
  FilePart part[N_PARTS];
  int64_t end;            // of the parts
  atomic_uchar *compared; // blocks of the payload with the right checksum
  bool started, refused;  // the check of the program and the trailer; they are damaged
} self;

static const char hint[] = "hint: copy the executable again, or compile it again";

// Finds the parts, if the file has a trailer.
static bool find_parts(Why *w) {
  NnrtTrailer t;
  if (self.file.at) return true;
  if (!nnrt_in_open(&self.file, "/proc/self/exe", w)) return false;
  int64_t size = self.file.bytes;
  if (size < (int64_t)sizeof t) return true;
  memcpy(&t, self.file.at + size - sizeof t, sizeof t);
  self.there = memcmp(t.magic, NNRT_TRAILER_MAGIC, sizeof t.magic) == 0;
  const int64_t bytes[N_PARTS] = {t.offset, t.bytes, t.plans};
  int64_t n = 0;
  // None is larger than the file, so no sum of damaged numbers overflows.
  for (int i = 0; i < N_PARTS; i++) {
    if (!self.there || bytes[i] < 0 || bytes[i] > size) return true;
    self.part[i] = (FilePart){self.end, bytes[i], NULL};
    self.end += bytes[i];
    n += nnrt_blocks(bytes[i]);
  }
  int64_t sums = (self.end + NNRT_SUM_ALIGN - 1) / NNRT_SUM_ALIGN * NNRT_SUM_ALIGN;
  if (t.offset % NNRT_PAYLOAD_ALIGN ||
      sums + n * (int64_t)sizeof(uint64_t) + (int64_t)sizeof t != size)
    return true;
  self.sound = xxh64(self.file.at + self.end, size - (int64_t)sizeof t.sum - self.end, 0) == t.sum;
  // The mapping begins at a page, and the checksums at a multiple of 8.
  const uint64_t *sum = (const uint64_t *)(const void *)(self.file.at + sums);
  for (int i = 0; i < N_PARTS; sum += nnrt_blocks(bytes[i++]))
    self.part[i].sum = sum;
  return true;
}

static bool block_sound(const FilePart *part, int64_t k) {
  int64_t at = k * NNRT_BLOCK, left = part->bytes - at;
  return xxh64(self.file.at + part->at + at, left < NNRT_BLOCK ? left : NNRT_BLOCK, 0) ==
         part->sum[k];
}

// Returns the first damaged block of the part from block k on; -1: none.
static int64_t find_damaged(const FilePart *part, int64_t k) {
  for (; k < nnrt_blocks(part->bytes); k++)
    if (!block_sound(part, k)) return k;
  return -1;
}

typedef struct Range {
  char text[64];
} Range;

static Range block_range(const FilePart *part, int64_t k) {
  Range range;
  int64_t end = (k + 1) * NNRT_BLOCK;
  snprintf(range.text, sizeof range.text, "bytes %lld to %lld",
           (long long)(part->at + k * NNRT_BLOCK),
           (long long)(part->at + (end < part->bytes ? end : part->bytes) - 1));
  return range;
}

// ---- the program, before it runs

static bool program_sound(Why *w) {
  if (!self.sound)
    return why(w, "this executable is damaged: its end, which has the checksums\n%s", hint);
  int64_t k = find_damaged(&self.part[PROGRAM], 0);
  if (k < 0) return true;
  return why(w, "this executable is damaged: its program, %s\n%s",
             block_range(&self.part[PROGRAM], k).text, hint);
}

// A flipped bit in the code that compares may crash it, or make a loop endless.
static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGVTALRM};
enum { N_CRASHES = sizeof crashes / sizeof *crashes, CPU_SECONDS = 20 };

static void crashed(int signal) {
  static const char text[] = "error: this executable is damaged: it cannot compare its checksums\n"
                             "hint: copy the executable again, or compile it again\n";
  (void)signal;
  ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
  (void)ignored;
  _exit(1);
}

static void refuse_damaged(void) {
  Why w;
  Launch launch;
  // A program that has no trailer yet is checked for its payload later.
  if (!find_parts(&w) || !self.there || program_sound(&w)) return;
  self.refused = true;
  // A rank of MPI has to connect before it ends (nnrt_ranks_refuse).
  if (nnrt_launch_find(&launch, &(Why){0}) && launch.kind == LAUNCH_mpi && launch.world > 1) return;
  nnrt_say_as(program_invocation_short_name, 0, false);
  nnrt_say_error("%s", w.text);
  nnrt_end_job(1);
}

static void check_program(void) {
  // Made by the compiler: few instructions run before a crash is caught.
  static char memory[1 << 15];
  static const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
  static const struct sigaction action = {.sa_handler = crashed, .sa_flags = SA_ONSTACK};
  static const struct itimerval limit = {.it_value.tv_sec = CPU_SECONDS}, none;
  static struct sigaction old[N_CRASHES];
  static stack_t old_stack;
  sigaltstack(&stack, &old_stack);
  for (int i = 0; i < N_CRASHES; i++)
    sigaction(crashes[i], &action, &old[i]);
  setitimer(ITIMER_VIRTUAL, &limit, NULL);
  self.started = true;
  refuse_damaged();
  setitimer(ITIMER_VIRTUAL, &none, NULL);
  for (int i = 0; i < N_CRASHES; i++)
    sigaction(crashes[i], &old[i], NULL);
  sigaltstack(&old_stack, NULL);
}

// Priority 101 is the first that programs may take: those of libraries that are linked into the
// executable come later.
__attribute__((constructor(101))) static void check_first(void) {
  check_program();
}

void nnrt_payload_refuse(void) {
  Why w;
  // Constructors do not run if the table of them is damaged.
  if (!self.started) check_program();
  if (self.refused && !program_sound(&w)) nnrt_ranks_refuse(1, "%s", w.text);
}

// ---- the payload

bool nnrt_payload_open(const NnrtProgram *p, const uint8_t **out, Why *w) {
  *out = NULL;
  if (p->payload_bytes == 0) return true;
  if (!find_parts(w)) return false;
  if (!self.there)
    return why(w, "the weights at the end of this executable are missing\n"
                  "hint: strip and objcopy remove them; use the file as nnaot wrote it, or add "
                  "the payload.bin of --emit c with --append");
  const FilePart *part = &self.part[PAYLOAD];
  if (part->bytes != p->payload_bytes)
    return why(w,
               "the weights at the end of this executable are of another program: %lld bytes, "
               "and this one has %lld\n%s",
               (long long)part->bytes, (long long)p->payload_bytes, hint);
  self.compared = nnrt_must_alloc((size_t)nnrt_blocks(part->bytes));
  *out = self.file.at + part->at;
  return true;
}

// Returns the names of the weights with bytes of the payload from `from` to `to`, and the model if
// it has some; the caller frees the text.
static char *names_at(const NnrtProgram *p, int64_t from, int64_t to) {
  enum { NAMED = 3 };
  const NnrtGraph *g = &p->train;
  char *text = NULL;
  int n = 0;
  int64_t weights = p->skeleton_bytes ? p->skeleton : p->payload_bytes;
  for (int i = 0; i < g->n_tensors; i++) {
    const NnrtTensor *t = &g->tensors[i];
    if (t->init != NNRT_from_payload || t->payload < 0 || t->role != NNRT_weight) continue;
    // A weight ends at the next one.
    int64_t end = weights;
    for (int k = 0; k < g->n_tensors; k++) {
      const NnrtTensor *next = &g->tensors[k];
      if (next->init == NNRT_from_payload && next->payload > t->payload && next->payload < end)
        end = next->payload;
    }
    if (t->payload >= to || end <= from || n++ >= NAMED) continue;
    text = nnrt_must_append(text, "%s'%s'", text ? ", " : "", t->name);
  }
  if (n > NAMED) text = nnrt_must_append(text, " and %d more", n - NAMED);
  if (p->skeleton_bytes && to > p->skeleton)
    text = nnrt_must_append(text, "%sthe model for --export", text ? ", " : "");
  return text ? text : nnrt_must_format("the bytes between them");
}

bool nnrt_payload_check(const NnrtProgram *p, int64_t at, int64_t bytes, Why *w) {
  const FilePart *part = &self.part[PAYLOAD];
  int64_t first = at / NNRT_BLOCK, end = (at + bytes - 1) / NNRT_BLOCK + 1, damaged = end;
#pragma omp parallel for reduction(min : damaged) if (end - first > 4)
  for (int64_t k = first; k < end; k++) {
    // Ranks of one process share the blocks that were compared.
    if (atomic_load_explicit(&self.compared[k], memory_order_relaxed)) continue;
    if (block_sound(part, k))
      atomic_store_explicit(&self.compared[k], 1, memory_order_relaxed);
    else if (k < damaged)
      damaged = k;
  }
  if (damaged == end) return true;
  char *names = names_at(p, damaged * NNRT_BLOCK, (damaged + 1) * NNRT_BLOCK);
  bool model = p->skeleton_bytes && damaged * NNRT_BLOCK >= p->skeleton;
  why(w, "this executable is damaged: %s, %s%s%s\n%s", model ? names : "its weights",
      block_range(part, damaged).text, model ? "" : ", of ", model ? "" : names, hint);
  free(names);
  return false;
}

void nnrt_payload_release(int64_t at, int64_t bytes) {
  int64_t page = sysconf(_SC_PAGESIZE);
  int64_t from = self.part[PAYLOAD].at + at, end = from + bytes;
  // Whole pages; another rank that reads them gets them from the system's cache.
  from = (from + page - 1) / page * page;
  end = end / page * page;
  if (from < end)
    madvise((void *)(uintptr_t)(self.file.at + from), (size_t)(end - from), MADV_DONTNEED);
}

const char *nnrt_payload_plans(int64_t *out_bytes) {
  Why w;
  *out_bytes = 0;
  if (!find_parts(&w) || !self.sound || self.part[PLANS].bytes == 0) return NULL;
  *out_bytes = self.part[PLANS].bytes;
  return (const char *)self.file.at + self.part[PLANS].at;
}

int64_t nnrt_program_bytes(void) {
  Why w;
  return find_parts(&w) && self.sound ? self.part[PROGRAM].bytes : INT64_MAX;
}

// ---- --verify

static void say_part(FILE *out, const char *name, int64_t bytes) {
  fprintf(out, "%-9s %14lld bytes  ", name, (long long)bytes);
}

// Compares all blocks of a part with bytes from `from` to `to`.
static bool verify_part(const NnrtProgram *p, int i, const char *name, int64_t from, int64_t to,
                        FILE *out) {
  const FilePart *part = &self.part[i];
  int64_t first = -1, n = 0, end = (to + NNRT_BLOCK - 1) / NNRT_BLOCK;
  say_part(out, name, to - from);
  for (int64_t k = from / NNRT_BLOCK; k < end && from < to; k++) {
    if (block_sound(part, k)) continue;
    if (first < 0) first = k;
    n++;
  }
  if (!n) {
    fprintf(out, "ok\n");
    return true;
  }
  char *names =
      p && i == PAYLOAD ? names_at(p, first * NNRT_BLOCK, (first + 1) * NNRT_BLOCK) : NULL;
  fprintf(out, "damaged: %s%s", block_range(part, first).text, names ? ", of " : "");
  if (names) nnrt_put_shown(out, names);
  if (n > 1) fprintf(out, ", and %lld more blocks", (long long)n - 1);
  fputc('\n', out);
  free(names);
  return false;
}

bool nnrt_payload_verify(const NnrtProgram *p, FILE *out) {
  Why w;
  if (!find_parts(&w)) {
    nnrt_say_error("%s", w.text);
    return false;
  }
  // A damaged trailer was refused at the start.
  if (!self.there) {
    nnrt_say_error("this executable has no checksums at its end\n"
                   "hint: strip and objcopy remove them; use the file as nnaot wrote it");
    return false;
  }
  const FilePart *payload = &self.part[PAYLOAD], *plans = &self.part[PLANS];
  if (payload->bytes != p->payload_bytes) {
    nnrt_say_error("the weights at the end of this executable are of another program\n%s", hint);
    return false;
  }
  bool ok = verify_part(p, PROGRAM, "program", 0, self.part[PROGRAM].bytes, out);
  int64_t model = p->skeleton_bytes ? p->skeleton : payload->bytes;
  ok &= verify_part(p, PAYLOAD, "weights", 0, model, out);
  if (model < payload->bytes) ok &= verify_part(p, PAYLOAD, "model", model, payload->bytes, out);
  if (plans->bytes) ok &= verify_part(p, PLANS, "plans", 0, plans->bytes, out);
  say_part(out, "checksums", self.file.bytes - self.end);
  fprintf(out, "ok\n");
  return ok;
}
