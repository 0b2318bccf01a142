// Finds the launcher, and from it the number of ranks and the rank of this process.
//
//     MPICH, Intel MPI, Open MPI
//     torchrun           besides, rank 0 listens at MASTER_ADDR and MASTER_PORT
//     Slurm              of a task that srun started; rank 0 is on the first of its nodes
//
// launchers.def has the variables; the first launcher found wins.  None: all ranks are threads of
// this process.

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

// Returns a whole number from 0; -1 if the variable is not set, -2 if it has another value.
static int64_t variable(const char *name) {
  const char *text = getenv(name);
  if (!text) return -1;
  char *end;
  long long x = strtoll(text, &end, 10);
  return end == text || *end || x < 0 || x > 1 << 24 ? -2 : x;
}

typedef struct Launcher {
  int kind;
  const char *rank, *world, *local_world, *local_rank;
} Launcher;

static const Launcher launchers[] = {
#define LAUNCHER(kind, rank, world, local_world, local_rank)                                       \
  {LAUNCH_##kind, rank, world, local_world, local_rank},
#include "launchers.def"
#undef LAUNCHER
};
enum { MPICH, OPEN_MPI, TORCHRUN, SLURM_STEP, SLURM_JOB }; // rows

static bool take(Launch *l, int row, Why *w) {
  const Launcher *from = &launchers[row];
  const char *rank = from->rank, *world = from->world;
  int64_t r = variable(rank), n = variable(world);
  if (r < 0 || n < 0)
    return why(w, "%s is set, but %s%s is not a number", r == -1 ? world : rank,
               r < 0 ? rank : world, r == -2 || n == -2 ? "" : ", as launchers set it,");
  if (r >= n) return why(w, "%s is %lld, but %s is %lld", rank, (long long)r, world, (long long)n);
  l->kind = from->kind;
  l->said_by = world;
  l->rank = (int)r;
  l->world = (int)n;
  // Not every launcher tells the ranks of this machine.
  int64_t here = variable(from->local_world);
  l->local_world = here > 0 ? (int)here : 0;
  int64_t place = variable(from->local_rank);
  l->local_rank = place >= 0 ? (int)place : -1;
  l->one_host = l->local_world == l->world;
  return true;
}

// Returns the first host of Slurm's list.  Of each bracket its first number is taken:
//
//     gpu[03-05,9],login   gpu03
//     rack[1-2]n[1-4]      rack1n1
//     node[2-3]-ib         node2-ib
static char *first_host(const char *list) {
  char *host = nnrt_must_format("%s", "");
  while (*list && *list != ',') {
    bool bracket = *list == '[';
    size_t n = bracket ? strcspn(++list, "-,]") : strcspn(list, "[,");
    host = nnrt_must_append(host, "%.*s", (int)n, list);
    list += n;
    if (bracket) list += strcspn(list, "]");
    if (bracket && *list) list++;
  }
  return host;
}

// Whether Slurm has started this process as one of several tasks.  It sets SLURM_PROCID in a batch
// script too.
static bool is_task(void) {
  bool step = getenv("SLURM_STEP_ID") || getenv("SLURM_STEPID") || !getenv("SLURM_JOB_ID");
  return getenv("SLURM_PROCID") && step;
}

// RANK exported once for all tasks of srun makes each of them that rank.
static bool rank_fits_slurm(const Launch *l, Why *w) {
  int64_t tasks = variable("SLURM_STEP_NUM_TASKS"), task = variable("SLURM_PROCID");
  if (tasks < 0) tasks = variable("SLURM_NTASKS");
  // Processes of a torchrun in each task have ranks of their own.
  if (!is_task() || tasks < 2 || tasks != l->world || getenv("TORCHELASTIC_RUN_ID")) return true;
  return task == l->rank ||
         why(w,
             "RANK is %d, but SLURM_PROCID is %lld: RANK and WORLD_SIZE hide the ranks of srun\n"
             "hint: unset RANK WORLD_SIZE before srun",
             l->rank, (long long)task);
}

bool nnrt_launch_find(Launch *l, Why *w) {
  *l = (Launch){.world = 1, .local_rank = -1};
  if (getenv("PMI_RANK") || getenv("PMI_SIZE")) return take(l, MPICH, w);
  if (getenv("OMPI_COMM_WORLD_RANK")) return take(l, OPEN_MPI, w);
  if (getenv("RANK") && getenv("WORLD_SIZE")) {
    if (!take(l, TORCHRUN, w) || !rank_fits_slurm(l, w)) return false;
    l->host = getenv("MASTER_ADDR");
    int64_t port = variable("MASTER_PORT");
    if (l->world > 1 && (!l->host || port < 1 || port > 65535))
      return why(w, "RANK and WORLD_SIZE are set, but MASTER_ADDR and MASTER_PORT are not, so "
                    "rank 0 is unknown");
    l->port = (int)port;
    // Then torchrun's agent has a store of its own at MASTER_PORT.
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (agent && strcmp(agent, "True") == 0)
      l->port = l->port < 65000 ? l->port + 17 : l->port - 17;
    return true;
  }
  if (is_task()) {
    if (!take(l, getenv("SLURM_STEP_NUM_TASKS") ? SLURM_STEP : SLURM_JOB, w)) return false;
    int64_t n_nodes = variable("SLURM_STEP_NUM_NODES");
    if (n_nodes < 0) n_nodes = variable("SLURM_JOB_NUM_NODES");
    l->one_host |= n_nodes == 1;
    const char *nodes = getenv("SLURM_STEP_NODELIST");
    if (!nodes) nodes = getenv("SLURM_JOB_NODELIST");
    l->host = getenv("MASTER_ADDR");
    if (!l->host) l->host = nodes ? first_host(nodes) : "127.0.0.1";
    int64_t port = variable("MASTER_PORT"), job = variable("SLURM_JOB_ID");
    // Jobs that share a node need different ports.
    l->port = port > 0 && port < 65536 ? (int)port : 20000 + (int)((job > 0 ? job : 0) % 20000);
    return true;
  }
  return true;
}

double nnrt_launch_processors(const Launch *l, int ranks_here, int cores, int online,
                              double quota) {
  // A launcher that bound every rank to its own cores has divided them already.
  bool bound = l->kind != LAUNCH_none && (int64_t)cores * ranks_here <= online;
  double own = bound ? cores : (double)cores / ranks_here;
  return fmin(own, quota / ranks_here);
}

int nnrt_launch_share(const Launch *l, int ranks_here, int cores, int online, double quota) {
  // More threads would spend the quota early in each period, and all would wait for the next.  A
  // part of a processor needs a thread of its own.
  int threads = (int)nnrt_launch_processors(l, ranks_here, cores, online, ceil(quota));
  return threads > 1 ? threads : 1;
}

int nnrt_launch_threads(const Launch *l, int ranks_here) {
  if (getenv("OMP_NUM_THREADS")) return 0;
  // Those of the process: OMP_PROC_BIND binds this thread to one of them.
  int cores = omp_get_num_procs(), online = (int)sysconf(_SC_NPROCESSORS_ONLN);
  return nnrt_launch_share(l, ranks_here, cores, online, nnrt_cgroup_cpus(""));
}
