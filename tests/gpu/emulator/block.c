// Runs a kernel, block after block.  The threads of a block are fibres of the machine's thread that
// runs it.
//
// A fibre has a stack and executes
//
//     while some thread of the block has not begun:  run it from its first line to its last
//
// So a kernel without barriers is a plain loop on one fibre.  When a thread has to wait (at
// __syncthreads, or for its warp) its fibre is suspended, and another resumes: that of a runnable
// thread, or an idle one with the next thread.  Runnable threads precede threads that have not
// begun, so a warp runs as far ahead of the others as it can.  Every other block has its threads in
// descending order, and two of four kernels their blocks.  So a thread that reads data before
// another warp has written it mostly finds NaN: shared memory is filled with 0xff before each
// block.
//
// A barrier opens when all threads that have not ended have arrived, as on sm_70 and later.  If no
// thread is runnable, the program is wrong; the waiting point of each thread is reported.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include "internal.h"

#ifndef __x86_64__
#error "emulator: switching stacks is written for x86-64"
#endif

enum {
  WARP = 32,
  MAX_THREADS = 1024,
  MAX_SHARED = 227 * 1024,
  SHARED_PAGES = 228 * 1024,
  MAX_ARGUMENTS = 32764,
  PAGE = 4096,
  POISON = 0xff,
#ifdef __SANITIZE_ADDRESS__
  STACK = 256 * 1024, // its frames are large
#else
  STACK = 64 * 1024,
#endif
};

// Set for cuda_runtime.h.
typedef struct Position {
  uint3 thread, block, block_dim, grid_dim;
  void *dynamic_shared;
} Position;
enum { SYNC, SHUFFLE, BALLOT };
__thread Position emulated_position_;
void emulated_block_barrier(void);
uint64_t emulated_warp(int what, unsigned mask, uint64_t value, int from);
int emulated_lane(void);
void emulated_launch_kernel(dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                            const void *kernel, size_t argument_bytes,
                            void (*call)(void *arguments), void (*free)(void *arguments),
                            void *arguments);

typedef struct Kernel {
  EmulatedWork work;
  const void *function;
  dim3 grid, block;
  size_t shared;
  void (*call)(void *arguments);
  void (*free_arguments)(void *arguments);
  void *arguments;
} Kernel;

typedef struct Thread {
  uint3 at;
  enum { NOT_BEGUN, RUNS, AT_BARRIER, IN_WARP, ENDED } state;
  int fibre;
  int what, from; // kind of warp operation it waits for, and its source lane
  unsigned mask;
  uint64_t value; // its operand, then its result
} Thread;

typedef struct Fibre {
  void *sp;    // stack pointer while suspended
  char *stack; // lowest address
} Fibre;

// The state of one machine thread that runs kernels.
typedef struct Machine {
  Kernel *kernel;
  int n, begun, ended; // threads of the block
  bool descending;
  Thread thread[MAX_THREADS];
  int now; // the running thread
  int ready[MAX_THREADS], first_ready, n_ready;
  int barrier[MAX_THREADS], n_barrier;
  unsigned waiting[MAX_THREADS / WARP], gone[MAX_THREADS / WARP]; // lanes of each warp
  Fibre fibre[MAX_THREADS];
  int n_fibres, current;
  int idle[MAX_THREADS], n_idle; // all of them between blocks
  void *main_sp;
  unsigned kernels; // number of kernels run
  char *shared_end; // of the region for dynamic shared memory
  char *signal_stack;
#ifdef __SANITIZE_ADDRESS__
  const void *main_stack;
  size_t main_stack_bytes;
#endif
} Machine;

static __thread Machine *machine;
static pthread_key_t machine_key;

// ---- Switching.  Callee-saved registers are saved on the suspended stack.

void emulated_switch(void **save, void *to);
__asm__(".text\n"
        ".type emulated_switch, @function\n"
        "emulated_switch:\n"
        "  pushq %rbp\n"
        "  pushq %rbx\n"
        "  pushq %r12\n"
        "  pushq %r13\n"
        "  pushq %r14\n"
        "  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n"
        "  popq %r14\n"
        "  popq %r13\n"
        "  popq %r12\n"
        "  popq %rbx\n"
        "  popq %rbp\n"
        "  ret\n"
        ".size emulated_switch, . - emulated_switch\n");

static void arrived(void *false_stack) {
#ifdef __SANITIZE_ADDRESS__
  const void *from;
  size_t bytes;
  __sanitizer_finish_switch_fiber(false_stack, &from, &bytes);
  if (!machine->main_stack) machine->main_stack = from, machine->main_stack_bytes = bytes;
#else
  (void)false_stack;
#endif
}

static void switch_to(void **save, int fibre) {
  Machine *m = machine;
  m->current = fibre;
  Fibre *f = &m->fibre[fibre];
  void *false_stack = NULL;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&false_stack, f->stack, STACK);
#endif
  emulated_switch(save, f->sp);
  arrived(false_stack);
}

static void switch_to_main(void **save) {
  Machine *m = machine;
  void *false_stack = NULL;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&false_stack, m->main_stack, m->main_stack_bytes);
#endif
  emulated_switch(save, m->main_sp);
  arrived(false_stack);
}

// ---- Scheduling

static _Noreturn void nobody_can_go_on(void) {
  Machine *m = machine;
  int at_barrier = 0, in_warp = 0;
  const Thread *other = NULL;
  for (int i = 0; i < m->n; i++) {
    at_barrier += m->thread[i].state == AT_BARRIER;
    if (m->thread[i].state != IN_WARP) continue;
    if (!in_warp++) other = &m->thread[i];
  }
  static const char *const what[] = {"__syncwarp", "a shuffle", "a vote"};
  char warp[200] = "";
  if (other)
    snprintf(warp, sizeof warp, ", %d in their warp (thread %u,%u,%u in %s of lanes 0x%08x)",
             in_warp, other->at.x, other->at.y, other->at.z, what[other->what], other->mask);
  emulated_abort("kernel '%s', block %u,%u,%u of %d threads: nobody can go on: %d wait at "
                 "__syncthreads%s, %d have ended",
                 emulated_name(m->kernel->function), emulated_position_.block.x,
                 emulated_position_.block.y, emulated_position_.block.z, m->n, at_barrier, warp,
                 m->ended);
}

static void fibre_loop(void);

static int free_fibre(void) {
  Machine *m = machine;
  if (m->n_idle) return m->idle[--m->n_idle];
  Fibre *f = &m->fibre[m->n_fibres];
  char *at = mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED || mprotect(at, PAGE, PROT_NONE))
    emulated_abort("no memory for the stack of a thread");
  f->stack = at + PAGE;
  // Stacks of a warp begin at different cache lines.
  void **top = (void **)(void *)(f->stack + STACK - m->n_fibres % WARP * 128);
  // A null return address keeps the stack's alignment and ends backtraces.
  *--top = NULL;
  *--top = (void *)(uintptr_t)fibre_loop;
  f->sp = top - 6; // the registers
  memset(f->sp, 0, 6 * sizeof *top);
  return m->n_fibres++;
}

static void make_ready(int thread) {
  Machine *m = machine;
  m->ready[(m->first_ready + m->n_ready++) % MAX_THREADS] = thread;
}

// Switches from the current fibre to that of a runnable thread, or to one that begins a thread.
static void go_elsewhere(void **save) {
  Machine *m = machine;
  if (m->n_ready) {
    m->now = m->ready[m->first_ready];
    m->first_ready = (m->first_ready + 1) % MAX_THREADS;
    m->n_ready--;
    switch_to(save, m->thread[m->now].fibre);
  } else if (m->begun < m->n) {
    switch_to(save, free_fibre());
  } else {
    nobody_can_go_on();
  }
}

static void wait_as(int state) {
  Machine *m = machine;
  int me = m->now;
  m->thread[me].state = state;
  m->thread[me].fibre = m->current;
  go_elsewhere(&m->fibre[m->current].sp);
  m->thread[me].state = RUNS;
  emulated_position_.thread = m->thread[me].at;
}

static void open_barrier(void) {
  Machine *m = machine;
  for (int i = 0; i < m->n_barrier; i++)
    make_ready(m->barrier[i]);
  m->n_barrier = 0;
}

void emulated_block_barrier(void) {
  Machine *m = machine;
  if (m->n_barrier + 1 == m->n - m->ended) {
    open_barrier();
    return;
  }
  m->barrier[m->n_barrier++] = m->now;
  wait_as(AT_BARRIER);
}

int emulated_lane(void) {
  return machine->now % WARP;
}

// Gives the lanes of `mask` their results, if all that have not ended have arrived.
static bool complete_warp(int warp, int what, unsigned mask) {
  Machine *m = machine;
  unsigned here = mask & ~m->gone[warp], votes = 0;
  if (here & ~m->waiting[warp]) return false;
  Thread *lane = &m->thread[warp * WARP];
  uint64_t given[WARP];
  for (unsigned rest = here; rest; rest &= rest - 1) {
    int i = __builtin_ctz(rest);
    if (lane[i].mask != mask || lane[i].what != what) return false;
    given[i] = lane[i].value;
    votes |= (unsigned)(given[i] != 0) << i;
  }
  for (unsigned rest = here; rest; rest &= rest - 1) {
    int i = __builtin_ctz(rest), from = lane[i].from & (WARP - 1);
    lane[i].value = what == BALLOT     ? votes
                    : here >> from & 1 ? given[from]
                                       : UINT64_MAX; // of an ended lane
  }
  m->waiting[warp] &= ~here;
  return true;
}

uint64_t emulated_warp(int what, unsigned mask, uint64_t value, int from) {
  Machine *m = machine;
  int warp = m->now / WARP, me = m->now % WARP;
  Thread *t = &m->thread[m->now];
  if (!(mask >> me & 1))
    emulated_abort("kernel '%s': thread %u,%u,%u names lanes 0x%08x, and is not one of them",
                   emulated_name(m->kernel->function), t->at.x, t->at.y, t->at.z, mask);
  t->what = what;
  t->mask = mask;
  t->value = value;
  t->from = from;
  m->waiting[warp] |= 1u << me;
  unsigned waited = m->waiting[warp];
  // Most lanes find others missing: the last lane completes the operation.
  if (complete_warp(warp, what, mask)) {
    unsigned freed = waited & ~m->waiting[warp] & ~(1u << me);
    for (; freed; freed &= freed - 1)
      make_ready(warp * WARP + __builtin_ctz(freed));
    return t->value;
  }
  wait_as(IN_WARP);
  return t->value;
}

// Ends the current thread; threads that waited only for it resume.
static void end_thread(void) {
  Machine *m = machine;
  m->thread[m->now].state = ENDED;
  m->gone[m->now / WARP] |= 1u << m->now % WARP;
  m->ended++;
  if (m->n_barrier && m->n_barrier == m->n - m->ended) open_barrier();
  int warp = m->now / WARP;
  unsigned waiting = m->waiting[warp];
  for (unsigned rest = waiting; rest; rest &= rest - 1) {
    int lane = __builtin_ctz(rest);
    Thread *t = &m->thread[warp * WARP + lane];
    if (!(m->waiting[warp] >> lane & 1) || !(t->mask >> m->now % WARP & 1)) continue;
    complete_warp(warp, t->what, t->mask);
  }
  for (unsigned freed = waiting & ~m->waiting[warp]; freed; freed &= freed - 1)
    make_ready(warp * WARP + __builtin_ctz(freed));
}

static void begin_thread(void) {
  Machine *m = machine;
  m->now = m->descending ? m->n - 1 - m->begun : m->begun;
  m->begun++;
  Thread *t = &m->thread[m->now];
  unsigned x = m->kernel->block.x, y = m->kernel->block.y, i = (unsigned)m->now;
  t->at = (uint3){i % x, i / x % y, i / x / y};
  t->state = RUNS;
  emulated_position_.thread = t->at;
}

static void fibre_loop(void) {
  arrived(NULL);
  for (;;) {
    Machine *m = machine;
    while (m->begun < m->n && !m->n_ready) {
      begin_thread();
      m->kernel->call(m->kernel->arguments);
      end_thread();
    }
    m->idle[m->n_idle++] = m->current;
    void **save = &m->fibre[m->current].sp;
    if (m->ended == m->n)
      switch_to_main(save);
    else
      go_elsewhere(save);
  }
}

// ---- Blocks

static void free_machine(void *p) {
  Machine *m = p;
  for (int i = 0; i < m->n_fibres; i++)
    munmap(m->fibre[i].stack - PAGE, STACK + PAGE);
  munmap(m->shared_end - SHARED_PAGES - PAGE, SHARED_PAGES + 2 * PAGE);
  stack_t off = {.ss_flags = SS_DISABLE};
  sigaltstack(&off, NULL);
  free(m->signal_stack);
  free(m);
}

#ifndef __SANITIZE_ADDRESS__
// On an invalid access of a kernel: reports it, and dies.
static void say_segv(int signal, siginfo_t *info, void *context) {
  (void)context;
  char what[200], where[400] = "the host";
  emulated_describe(info->si_addr, what, sizeof what);
  const void *kernel;
  uint3 b, t;
  if (emulated_position(&kernel, &b, &t))
    snprintf(where, sizeof where, "kernel '%s', block %u,%u,%u, thread %u,%u,%u",
             emulated_name(kernel), b.x, b.y, b.z, t.x, t.y, t.z);
  fprintf(stderr, "emulated gpu: %s touches %p: %s\n", where, info->si_addr, what);
  struct sigaction plain = {.sa_handler = SIG_DFL};
  sigaction(signal, &plain, NULL);
}
#endif

static void make_key(void) {
  pthread_key_create(&machine_key, free_machine);
#ifndef __SANITIZE_ADDRESS__
  struct sigaction a = {.sa_sigaction = say_segv, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigaction(SIGSEGV, &a, NULL);
#endif
}

void emulated_catch_faults(void);
void emulated_catch_faults(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_key);
}

static Machine *make_machine(void) {
  emulated_catch_faults();
  Machine *m = calloc(1, sizeof *m);
  if (!m) emulated_abort("no memory");
  char *at = mmap(NULL, SHARED_PAGES + 2 * PAGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED || mprotect(at, PAGE, PROT_NONE) ||
      mprotect(at + PAGE + SHARED_PAGES, PAGE, PROT_NONE))
    emulated_abort("no memory for shared memory");
  m->shared_end = at + PAGE + SHARED_PAGES;
#ifndef __SANITIZE_ADDRESS__
  m->signal_stack = malloc(16 * PAGE);
  stack_t on = {.ss_sp = m->signal_stack, .ss_size = 16 * PAGE};
  sigaltstack(&on, NULL);
#endif
  pthread_setspecific(machine_key, m);
  return m;
}

static void run_block(Machine *m, uint3 block, bool descending) {
  m->descending = descending;
  m->begun = m->ended = m->n_ready = m->n_barrier = 0;
  for (int i = 0; i < m->n; i++)
    m->thread[i].state = NOT_BEGUN;
  for (int i = 0; i < MAX_THREADS / WARP; i++) {
    int lanes = m->n - i * WARP;
    m->waiting[i] = 0;
    m->gone[i] = lanes >= WARP ? 0 : lanes <= 0 ? ~0u : ~0u << lanes; // lanes that do not exist
  }

  char *thread_local_memory = emulated_thread_local();
  const SharedVariable *variable;
  int n = emulated_shared_variables(&variable);
  for (int i = 0; i < n; i++)
    memset(thread_local_memory + variable[i].offset, POISON, variable[i].bytes);
  size_t shared = m->kernel->shared, whole = (shared + 127) / 128 * 128;
  char *dynamic = m->shared_end - whole;
  memset(dynamic, POISON, whole);

  emulated_position_.block = block;
  emulated_position_.dynamic_shared = dynamic;
  switch_to(&m->main_sp, free_fibre());

  for (size_t i = shared; i < whole; i++)
    if ((unsigned char)dynamic[i] != POISON)
      emulated_abort("kernel '%s', block %u,%u,%u: writes to byte %zu of %zu of its dynamic "
                     "shared memory",
                     emulated_name(m->kernel->function), block.x, block.y, block.z, i, shared);
}

static bool run_kernel(EmulatedWork *w, bool again) {
  (void)again;
  if (!machine) machine = make_machine();
  Machine *m = machine;
  Kernel *k = (Kernel *)w;
  m->kernel = k;
  m->n = (int)(k->block.x * k->block.y * k->block.z);
  emulated_position_.block_dim = (uint3){k->block.x, k->block.y, k->block.z};
  emulated_position_.grid_dim = (uint3){k->grid.x, k->grid.y, k->grid.z};
  uint64_t n = (uint64_t)k->grid.x * k->grid.y * k->grid.z;
  unsigned turn = m->kernels++;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t at = turn % 4 < 2 ? i : n - 1 - i;
    run_block(m,
              (uint3){(unsigned)(at % k->grid.x), (unsigned)(at / k->grid.x % k->grid.y),
                      (unsigned)(at / k->grid.x / k->grid.y)},
              (at + turn) % 2);
  }
  m->kernel = NULL;
  return true;
}

bool emulated_position(const void **kernel, uint3 *block, uint3 *thread) {
  if (!machine || !machine->kernel) return false;
  *kernel = machine->kernel->function;
  *block = emulated_position_.block;
  *thread = emulated_position_.thread;
  return true;
}

// ---- Launching

static void free_kernel(EmulatedWork *w) {
  Kernel *k = (Kernel *)w;
  k->free_arguments(k->arguments);
  free(k);
}

void emulated_launch_kernel(dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                            const void *kernel, size_t argument_bytes,
                            void (*call)(void *arguments), void (*free)(void *arguments),
                            void *arguments) {
  Kernel *k = emulated_alloc(sizeof *k);
  *k = (Kernel){.work = {emulated_name(kernel), run_kernel, free_kernel},
                .function = kernel,
                .grid = grid,
                .block = block,
                .shared = shared,
                .call = call,
                .free_arguments = free,
                .arguments = arguments};
  uint64_t threads = (uint64_t)block.x * block.y * block.z;
  cudaError_t e = emulated_ready();
  if (e == cudaSuccess && (grid.x == 0 || grid.x > INT32_MAX || grid.y == 0 || grid.y > 65535 ||
                           grid.z == 0 || grid.z > 65535 || threads == 0 || block.x > 1024 ||
                           block.y > 1024 || block.z > 64 || threads > MAX_THREADS))
    e = cudaErrorInvalidConfiguration;
  if (e == cudaSuccess && (shared > MAX_SHARED || argument_bytes > MAX_ARGUMENTS))
    e = cudaErrorInvalidValue;
  if (e != cudaSuccess) {
    free_kernel(&k->work);
    emulated_error(e);
    return;
  }
  emulated_enqueue(stream, &k->work, NULL);
}
