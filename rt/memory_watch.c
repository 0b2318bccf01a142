// --memory: measures the peak of each rank's resident slab pages, by trapping accesses to them.
//
//     op       linear   gelu   linear   add
//     page 7   write    read                     in use from the first op to the second
//     page 8            write  read     read     from the second to the last
//     page 7                   write    read     something else: in use again
//
// A page is in use from an op that begins to write it to the last one that reads it before another
// begins to write it.  A page that is read before any write was in use from the start: weights. The
// most pages in use at once are the peak; --summary predicts it.
//
// This measurement does not use the offsets that the compiler chose.  While an op runs, all pages
// that it has not touched are protected.  A fault stops the accessing thread; on_fault permits the
// access and records whether it is a read or a write.  All threads are seen: kernel threads,
// communicating threads, and other ranks of this process, which read each other's slabs.  A system
// call on a protected slab fails instead, so ranks must not be processes here.
//
// Buffers of a communication are in use from its start until a wait, even if it completes earlier:
// y of a move for the received data, x and y of a collective.  The communication reports them
// (nnrt_in_use_lend), as no access shows it.
//
// Values that share a page are in use together: an error of at most a few KiB per tensor.

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "comm.h"

typedef enum Access { ACCESS_none, ACCESS_read, ACCESS_write } Access;

typedef struct Page {
  Access first; // in the current op
  bool lives;
  int lent;         // number of communications that use it
  int32_t from, to; // moments, of the last live range
} Page;

// The pages that a communication into `y` uses.
typedef struct Lent {
  struct Lent *next;
  const void *y;
  int first[2], end[2];
} Lent;

// An op of a step is a moment, and so is the time between two ops.
typedef struct Moment {
  int32_t begin, end; // pages with a live range that begins or ends here
  int32_t op;         // of @train, then of @eval; -1: between ops
} Moment;

typedef struct NnrtInUse {
  struct NnrtInUse *next; // the ranks of this process
  char *slab;
  int64_t bytes; // of the pages
  int n_pages;
  Page *page;
  atomic_flag busy; // guards the fields that change: threads fault at any time
  int *touched;     // pages, since the op began
  int n_touched;
  bool rests; // no page is protected
  Lent *lent; // in the order of starts
  Moment *moment;
  int32_t n_moments, room;
} NnrtInUse;

// Restored for a fault outside of all watched pages, which then ends the process as usual.
static struct sigaction before;
static _Atomic(NnrtInUse *) all;
static int64_t page_bytes;

static void lock(NnrtInUse *u) {
  while (atomic_flag_test_and_set_explicit(&u->busy, memory_order_acquire))
    sched_yield();
}

static void unlock(NnrtInUse *u) {
  atomic_flag_clear_explicit(&u->busy, memory_order_release);
}

// ---- accesses to pages

#ifdef __x86_64__
static const bool known_machine = true;

static Access access_of(const void *context) {
  const ucontext_t *c = context;
  return c->uc_mcontext.gregs[REG_ERR] & 2 ? ACCESS_write : ACCESS_read;
}
#else
static const bool known_machine = false;

static Access access_of(const void *context) {
  (void)context;
  return ACCESS_read;
}
#endif

static void touch(NnrtInUse *u, int i, Access access) {
  // The first access decides: a page that is written first holds nothing older.
  if (u->page[i].first != ACCESS_none) return;
  u->page[i].first = access;
  u->touched[u->n_touched++] = i;
}

static void on_fault(int signal_number, siginfo_t *info, void *context) {
  const char *at = info->si_addr;
  for (NnrtInUse *u = atomic_load(&all); u; u = u->next)
    if (at >= u->slab && at < u->slab + u->bytes) {
      // The access is permitted and recorded; the thread then repeats it.
      int i = (int)((at - u->slab) / page_bytes);
      Access access = access_of(context);
      lock(u);
      // A second fault on a page that was read is a write.
      bool writes = access == ACCESS_write || u->page[i].first != ACCESS_none;
      int may = writes ? PROT_READ | PROT_WRITE : PROT_READ;
      touch(u, i, u->page[i].lent ? ACCESS_read : access);
      mprotect(u->slab + i * page_bytes, (size_t)page_bytes, may);
      unlock(u);
      return;
    }
  sigaction(signal_number, &before, NULL); // the access is tried again
}

// ---- moments

static void close_life(NnrtInUse *u, Page *p) {
  if (p->lives) {
    // Only the ends count: the peak is a running sum over moments.
    u->moment[p->from].begin++;
    u->moment[p->to].end++;
  }
  p->lives = false;
}

static void add_moment(NnrtInUse *u, int32_t op) {
  if (u->n_moments == u->room) {
    u->room = u->room ? 2 * u->room : 1024;
    u->moment = realloc(u->moment, (size_t)u->room * sizeof *u->moment);
    if (!u->moment) nnrt_must_alloc((size_t)-1);
  }
  u->moment[u->n_moments++] = (Moment){.op = op};
}

// Ends the last moment: pages touched since its begin belong to it.
static void end_moment(NnrtInUse *u) {
  int32_t now = u->n_moments - 1;
  for (int i = 0; i < u->n_touched; i++) {
    Page *p = &u->page[u->touched[i]];
    // A write begins another live range; a read extends the last one.
    if (p->first == ACCESS_write) close_life(u, p);
    if (!p->lives) p->from = p->first == ACCESS_write ? now : 0;
    p->lives = true;
    p->to = now;
    p->first = ACCESS_none;
  }
  u->n_touched = 0;
}

void nnrt_in_use_op(NnrtRank *r, int i) {
  NnrtInUse *u = r->in_use;
  const NnrtProgram *p = r->program;
  lock(u);
  // All pages fault again: one system call, whatever their number.
  if (u->n_touched || u->rests) mprotect(u->slab, (size_t)u->bytes, PROT_NONE);
  u->rests = false;
  end_moment(u);
  add_moment(u, i < 0 || r->graph == &p->train ? i : p->train.n_ops + i);
  unlock(u);
}

void nnrt_in_use_rest(NnrtRank *r) {
  NnrtInUse *u = r->in_use;
  if (!u) return;
  lock(u);
  u->rests = true;
  mprotect(u->slab, (size_t)u->bytes, PROT_READ | PROT_WRITE);
  unlock(u);
}

// ---- communication

static void find_pages(const NnrtInUse *u, const void *at, int64_t bytes, int *out_first,
                       int *out_end) {
  int64_t from = (const char *)at - u->slab;
  // Memory outside of the slab is not watched.
  if (from < 0 || from >= u->bytes) {
    *out_first = *out_end = 0;
    return;
  }
  *out_first = (int)(from / page_bytes);
  *out_end = bytes ? (int)((from + bytes - 1) / page_bytes) + 1 : *out_first;
}

static void touch_lent(NnrtInUse *u, const Lent *l, int which, Access access, int more) {
  for (int i = l->first[which]; i < l->end[which]; i++) {
    touch(u, i, access);
    u->page[i].lent += more;
  }
}

void nnrt_in_use_lend(NnrtRank *r, const void *y, int64_t y_bytes, const void *x, int64_t x_bytes) {
  NnrtInUse *u = r->in_use;
  Lent *l = nnrt_must_alloc(sizeof *l), **end = &u->lent;
  l->y = y;
  if (x) find_pages(u, x, x_bytes, &l->first[0], &l->end[0]);
  find_pages(u, y, y_bytes, &l->first[1], &l->end[1]);
  lock(u);
  touch_lent(u, l, 0, ACCESS_read, 1); // first, as x may be y
  touch_lent(u, l, 1, ACCESS_write, 1);
  // The oldest is first: communications into the same y end in order.
  while (*end)
    end = &(*end)->next;
  *end = l;
  unlock(u);
}

void nnrt_in_use_back(NnrtRank *r, const void *y) {
  NnrtInUse *u = r->in_use;
  Lent **at = &u->lent, *l;
  while (*at && (*at)->y != y)
    at = &(*at)->next;
  // Without an entry, no communication into `y` is pending.
  if (!(l = *at)) return;
  *at = l->next;
  lock(u);
  touch_lent(u, l, 0, ACCESS_read, -1);
  touch_lent(u, l, 1, ACCESS_read, -1);
  unlock(u);
  free(l);
}

// ---- from the first step to the last

bool nnrt_in_use_possible(const NnrtRun *run, Why *w) {
  if (!run->flags.memory.given) return true;
  if (!known_machine) return why(w, "--memory is only known on x86-64");
  if (run->launch.kind == LAUNCH_none || run->program->ranks == 1) return true;
  return why(w, "--memory watches ranks of one process, and these are several\n"
                "hint: start it without a launcher");
}

// Runs the fault handler on a stack of its own.  Kernels that oneDNN generates may keep data below
// the stack pointer, beyond the red zone that a signal preserves (its AVX matrix product does).
static void give_stack(void) {
  enum { STACK = 1 << 16 };
  stack_t stack;
  if (sigaltstack(NULL, &stack) || !(stack.ss_flags & SS_DISABLE)) return;
  stack = (stack_t){.ss_sp = nnrt_must_alloc(STACK), .ss_size = STACK};
  sigaltstack(&stack, NULL);
}

void nnrt_in_use_start(NnrtRank *r) {
  static atomic_flag first = ATOMIC_FLAG_INIT;
  NnrtInUse *u = nnrt_must_alloc(sizeof *u);
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  int64_t page = sysconf(_SC_PAGESIZE);
  u->slab = r->slab;
  u->n_pages = (int)((r->code->slab_bytes + page - 1) / page);
  u->bytes = u->n_pages * page;
  u->page = nnrt_must_alloc((size_t)u->n_pages * sizeof *u->page + 1);
  u->touched = nnrt_must_alloc((size_t)u->n_pages * sizeof *u->touched + 1);
  add_moment(u, -1);
  // The signal handler is the process's; the first rank installs it.
  if (!atomic_flag_test_and_set(&first)) {
    page_bytes = page;
    sigaction(SIGSEGV, &action, &before);
  }
  // Lock-free: another rank may fault meanwhile, and its handler walks the list.
  NnrtInUse *head = atomic_load(&all);
  do
    u->next = head;
  while (!atomic_compare_exchange_weak(&all, &head, u));
  nnrt_comm_sum(r, &(int64_t){0}, 1); // another rank may have been the first
#pragma omp parallel
  give_stack();
  r->in_use = u;
  mprotect(u->slab, (size_t)u->bytes, PROT_NONE);
}

// The peak of a rank.  Ranks are combined by a sum over an array of these.
typedef struct Most {
  int64_t slab, touched, peak, op;
} Most;

static Most stop(NnrtRank *r) {
  NnrtInUse *u = r->in_use;
  int64_t touched = 0;
  mprotect(u->slab, (size_t)u->bytes, PROT_READ | PROT_WRITE);
  lock(u);
  end_moment(u);
  // Pages that are still in use end now.
  for (int i = 0; i < u->n_pages; i++) {
    touched += u->page[i].lives ? page_bytes : 0;
    close_life(u, &u->page[i]);
  }
  // The peak is the largest number of pages whose live ranges overlap at one moment.
  Most most = {.slab = r->code->slab_bytes, .op = -1};
  int64_t now = 0;
  for (int32_t i = 0; i < u->n_moments; i++) {
    const Moment *m = &u->moment[i];
    now += m->begin;
    if (now * page_bytes > most.peak) {
      most.peak = now * page_bytes;
      most.op = m->op;
    }
    now -= m->end;
  }
  most.touched = touched;
  unlock(u);
  r->in_use = NULL;
  return most;
}

static const char *op_name(const NnrtProgram *p, int64_t op) {
  if (op < 0) return "";
  return op < p->train.n_ops ? p->train.ops[op] : p->eval.ops[op - p->train.n_ops];
}

bool nnrt_in_use_write(NnrtRank *r, const char *path, Why *w) {
  Most *most = nnrt_must_alloc((size_t)r->ranks * sizeof *most);
  most[r->rank] = stop(r);
  // Each rank fills only its own entry, so the sum gathers them.
  nnrt_comm_sum(r, (int64_t *)(void *)most, r->ranks * (int64_t)(sizeof *most / sizeof(int64_t)));
  bool ok = true;
  if (r->rank == 0) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) nnrt_must_alloc((size_t)-1);
    // The file has one object per rank.
    const NnrtProgram *p = r->program;
    fprintf(f, "{\n  \"ranks\": %d,\n  \"page_bytes\": %lld,\n  \"per_rank\": [", p->ranks,
            (long long)page_bytes);
    for (int i = 0; i < p->ranks; i++) {
      fprintf(f,
              "%s\n    {\"slab_bytes\": %lld, \"touched_bytes\": %lld, \"peak_bytes\": %lld, "
              "\"peak_op\": ",
              i ? "," : "", (long long)most[i].slab, (long long)most[i].touched,
              (long long)most[i].peak);
      nnrt_json_write_string(f, op_name(p, most[i].op));
      fputc('}', f);
    }
    fputs("\n  ]\n}\n", f);
    nnrt_must_close(f, &text);
    OutFile o = {.fd = -1};
    bool begun = nnrt_out_begin(&o, path, w);
    ok = begun && nnrt_out_write(&o, text, (int64_t)n, w) && nnrt_out_commit(&o, w);
    if (begun && !ok) nnrt_out_abandon(&o);
    free(text);
  }
  free(most);
  return ok;
}
