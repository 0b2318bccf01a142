// Starts the ranks: memory, communication, training, and the end.
//
// With a launcher this process is one rank.  Without, every rank is a thread of it; they share the
// files that main opened, and each has a slab.

#include <omp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm.h"
#include "device.h"
#include "runtime.h"

typedef struct RankStart {
  NnrtRank rank;
  const Transport *transport;
  void *shared;
  int status;
} RankStart;

static void *run_rank(void *arg) {
  RankStart *start = arg;
  NnrtRank *r = &start->rank;
  NnrtRun *run = r->run;
  Why w;
  nnrt_stacks_add(r, "its own thread");
  // OpenMP's settings are those of a thread.  With OMP_DYNAMIC the number of threads, and with it
  // the bits of a sum, would change from call to call.
  omp_set_dynamic(0);
  if (run->threads > 0) omp_set_num_threads(run->threads);
  nnrt_say_here(r);
  if (!nnrt_reserve(r, &w)) {
    nnrt_say_error("%s", w.text);
    nnrt_end_job(1);
  }
  r->prep = nnrt_must_alloc((size_t)(r->program->n_prep + 1) * sizeof *r->prep);
  nnrt_set_coords(r);
  // A rank that is a process has connected before.
  if (!r->comm && !nnrt_comm_open(r, start->transport, start->shared, &w)) {
    nnrt_say_error("%s", w.text);
    nnrt_end_job(1);
  }
  nnrt_device_open(r);
  start->status = nnrt_train(r);
  atomic_store(&r->comm->parted, true);
  // Work in flight may still use the prepared kernels.
  nnrt_device_finish(r);
  for (int i = 0; i < r->program->n_prep; i++)
    nnrt_prep_free(r->prep[i]);
  free(r->prep);
  free(r->coord);
  nnrt_device_close(r);
  nnrt_comm_close(r);
  return NULL;
}

static void rank_start(RankStart *start, NnrtRun *run, int rank) {
  const NnrtProgram *p = run->program;
  start->rank = (NnrtRank){
      .rank = rank, .ranks = p->ranks, .program = p, .code = nnrt_code_of(p, rank), .run = run};
}

static bool alone(const NnrtRun *run) {
  const Launch *l = &run->launch;
  return l->kind == LAUNCH_none || (run->program->ranks == 1 && l->world == 1);
}

static RankStart process_start;   // this process as a rank, if it is not the only one
static const NnrtProgram nothing; // of a process that is no rank of its program

bool nnrt_ranks_connect(NnrtRun *run, Why *w) {
  if (alone(run)) return true;
  RankStart *start = &process_start;
  const Launch *l = &run->launch;
  // A surplus process connects too, so that the others can end it.
  run->peers = nnrt_peers_new(run->program, l->world, l->rank, 1, true);
  if (l->world == run->program->ranks)
    rank_start(start, run, l->rank);
  else
    start->rank = (NnrtRank){.rank = l->rank, .ranks = l->world, .program = &nothing, .run = run};
  start->transport = &nnrt_comm_processes;
  start->shared = l->kind == LAUNCH_mpi ? nnrt_wire_mpi(run) : nnrt_wire_tcp(run);
  if (!nnrt_comm_open(&start->rank, start->transport, start->shared, w)) return false;
  return !nnrt_peers_meet(run->peers, &start->rank) || why(w, "%s", nnrt_error_detail());
}

// Waits until all ranks have reported: a launcher ends all processes when one ends.
static _Noreturn void end_together(NnrtRun *run, int status) {
  NnrtRank *r = &process_start.rank;
  int64_t none = 0;
  if (!alone(run)) {
    nnrt_comm_do(r->comm, (Job){JOB_all_reduce, &r->comm->world, &none, &none, 1, NNRT_i64,
                                .everyone = true});
    nnrt_comm_close(r);
  }
  nnrt_end_job(status);
}

// Processes of MPI connect, and report to the others by the first terms that are compared.  Other
// launchers see that a process ends, and end the rest before they report the same.
_Noreturn void nnrt_ranks_refuse(int status, const char *fmt, ...) {
  static NnrtRun run = {.program = &nothing};
  char text[1024];
  Why w;
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  bool launched = nnrt_launch_find(&run.launch, &w) && run.launch.world > 1;
  bool first = !launched || run.launch.rank == 0;
  if (first) nnrt_say_error("%s", text);
  if (!launched) nnrt_end_job(status);
  // The launcher usually ends the other ranks after rank 0, before they would repeat its message.
  if (run.launch.kind != LAUNCH_mpi) {
    if (!first) sleep(1);
    if (!first) nnrt_say_error("%s", text);
    nnrt_end_job(status);
  }
  if (!nnrt_ranks_connect(&run, &w)) {
    if (!first) nnrt_say_error("%s", text);
    nnrt_end_job(status);
  }
  // The other ranks are comparing terms now: this rank's differ from theirs.
  Terms mine = {0};
  bool alike;
  nnrt_terms_add(&mine, "the command line", "not understood: %.*s", (int)strcspn(text, "\n"), text);
  if (nnrt_terms_compare(&process_start.rank, &mine, &alike, &w)) nnrt_end_job(status);
  end_together(&run, status); // rank 0 reports the difference, if it parsed its own
}

void nnrt_ranks_compare(NnrtRun *run, Terms *t, const char *hint, int status) {
  NnrtRank *r = &process_start.rank;
  bool alike = true;
  Why w;
  int code = alone(run) ? 0 : nnrt_terms_compare(r, t, &alike, &w);
  nnrt_terms_free(t);
  // The connection failed; otherwise all ranks agree on the result.
  if (code) {
    nnrt_say_error("%s", nnrt_error_detail());
    nnrt_end_job(1);
  }
  if (alike) return;
  why(&w, "%s\nhint: %s", w.text, hint);
  nnrt_ranks_end(run, w.text, status);
}

_Noreturn void nnrt_ranks_end(NnrtRun *run, const char *text, int status) {
  if (run->launch.rank == 0) nnrt_say_error("%s", text);
  end_together(run, status);
}

void nnrt_ranks_sum(NnrtRun *run, int64_t *x, int n) {
  if (!alone(run)) nnrt_comm_sum(&process_start.rank, x, n);
}

void nnrt_ranks_check(NnrtRun *run, int status, const char *text) {
  NnrtRank *r = &process_start.rank;
  int n = alone(run) ? 1 : r->ranks, mine = alone(run) ? 0 : r->rank, first = 0;
  int64_t *failed = nnrt_must_alloc((size_t)n * sizeof *failed);
  // A sum, to which each rank adds its own entry.
  failed[mine] = status;
  if (!alone(run)) nnrt_comm_sum(r, failed, n);
  while (first < n && !failed[first])
    first++;
  if (first < n) status = (int)failed[first];
  free(failed);
  if (first == n) return;
  // Only the first rank that failed reports: the others may have the same error.
  if (first == mine) nnrt_say_error("%s", text);
  end_together(run, status);
}

int nnrt_ranks_run(NnrtRun *run) {
  if (!alone(run)) {
    run_rank(&process_start);
    return process_start.status;
  }
  // Every rank is a thread of this process.
  int n = run->program->ranks;
  RankStart *starts = nnrt_must_alloc((size_t)n * sizeof *starts);
  pthread_t *threads = nnrt_must_alloc((size_t)n * sizeof *threads);
  void *shared = n > 1 ? nnrt_comm_threads_new(run->program) : NULL;
  run->peers = nnrt_peers_new(run->program, n, 0, n, false);
  for (int i = 0; i < n; i++) {
    rank_start(&starts[i], run, i);
    starts[i].transport = &nnrt_comm_threads;
    starts[i].shared = shared;
  }
  // Rank 0 is the main thread.
  for (int i = 1; i < n; i++) {
    int code = pthread_create(&threads[i], NULL, run_rank, &starts[i]);
    if (code) {
      Why w;
      char thread[32];
      snprintf(thread, sizeof thread, "the thread of rank %d", i);
      nnrt_why_thread(&w, thread, code);
      nnrt_say_error("%s", w.text);
      nnrt_end_job(1);
    }
  }
  run_rank(&starts[0]);
  int status = starts[0].status;
  // The first failure is the job's status.
  for (int i = 1; i < n; i++) {
    pthread_join(threads[i], NULL);
    if (!status) status = starts[i].status;
  }
  nnrt_comm_threads_free(shared, run->program);
  free(threads);
  free(starts);
  return status;
}
