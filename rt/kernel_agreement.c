// The instruction set and the number of threads of all ranks: the lowest of theirs.
//
//     rank 0 on a:  avx512_bf16, 8 threads      note: all ranks use the instruction set 'avx2': rank 1
//     rank 1 on b:  avx2, 16 threads                  on b has no higher one, others have 'avx512_bf16'
//                                               note: all ranks use 8 threads, as rank 0 on a
//
// Kernels choose the order of their additions by both.  Ranks with other choices would compute
// other bits of their common shards, and --check-replicas could only judge the size of a
// difference. As all ranks wait for the slowest one in every step, the others lose little.

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

enum { HOST = 64 };

// One rank's row, in words of 8 bytes.
typedef struct Row {
  int64_t set, threads;
  char host[HOST];
} Row;
enum { ROW_WORDS = sizeof(Row) / 8 };

// Fills in this rank's row; the others add theirs.  The caller frees the rows.
static Row *gather_rows(NnrtRun *run, int64_t set) {
  int n = run->launch.world;
  Row *all = nnrt_must_alloc((size_t)n * sizeof *all), *mine = all + run->launch.rank;
  int threads = run->threads > 0 ? run->threads : omp_get_max_threads();
  // OMP_THREAD_LIMIT is one for all ranks of a process.
  int limit = omp_get_thread_limit() / (run->launch.kind == LAUNCH_none ? run->program->ranks : 1);
  if (limit < 1) limit = 1;
  *mine = (Row){.set = set, .threads = threads < limit ? threads : limit};
  if (gethostname(mine->host, HOST - 1) != 0) *mine->host = 0;
  nnrt_ranks_sum(run, (int64_t *)(void *)all, n * ROW_WORDS);
  return all;
}

static void say_set(const Row *all, int n, int64_t common) {
  int64_t other = common;
  int lowest = -1;
  for (int i = 0; i < n; i++) {
    if (all[i].set != common) other = all[i].set;
    if (all[i].set == common && lowest < 0) lowest = i;
  }
  if (other == common) return;
  char of[HOST + 64] = "no rank has all of another's";
  if (lowest >= 0)
    snprintf(of, sizeof of, "rank %d on %s has no higher one", lowest, all[lowest].host);
  nnrt_say_note("all ranks use the instruction set '%s': %s, others have '%s'",
                nnrt_device_isa_name(common), of, nnrt_device_isa_name(other));
}

static void say_threads(const Row *all, int n, int64_t least) {
  int of = -1, more = -1;
  for (int i = 0; i < n; i++) {
    if (all[i].threads == least && of < 0) of = i;
    if (all[i].threads > least && more < 0) more = i;
  }
  if (more >= 0)
    nnrt_say_note("all ranks use %lld thread%s, as rank %d on %s; rank %d on %s has %lld",
                  (long long)least, least == 1 ? "" : "s", of, all[of].host, more, all[more].host,
                  (long long)all[more].threads);
}

bool nnrt_kernels_agree(NnrtRun *run, int64_t set, Why *w) {
  if (set < 0) return true; // the same on all ranks
  Row *all = gather_rows(run, set);
  int n = run->launch.world;
  int64_t common = set, least = all[run->launch.rank].threads;
  for (int i = 0; i < n; i++) {
    common &= all[i].set;
    least = all[i].threads < least ? all[i].threads : least;
  }
  if (run->launch.rank == 0) {
    say_set(all, n, common);
    say_threads(all, n, least);
    // The program that started a reference has said it.
    char *note = run->flags.check_write.given ? NULL : nnrt_device_isa_note(common, &run->flags);
    if (note) nnrt_say_note("%s", note);
    free(note);
  }
  free(all);
  run->threads = (int)least;
  return nnrt_device_use_isa(common, w);
}
