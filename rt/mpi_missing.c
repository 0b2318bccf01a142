// Names a rank that keeps MPI_Init waiting.
//
// Until MPI_Init returns, ranks cannot send to each other, and some launchers do not notice that a
// process has ended before it called MPI_Init.  But the ranks of this machine are processes whose
// environment has their number, started by the same process as this one:
//
//     hydra_pmi_proxy ─┬─ train  PMI_RANK=0   this process
//                      ├─ train  PMI_RANK=1   stopped by a signal
//                      └─ (rank 2 has ended)
//
// A rank that has come as far as MPI_Init has its record (peers.h), a memory file.

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpi_wire.h"

// Reads a file of /proc as text of lines or variables; returns its length.
static size_t read_proc(int pid, const char *name, char *out, size_t size) {
  char path[64];
  size_t n = 0;
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  for (ssize_t more = 1; file >= 0 && more > 0 && n < size - 1;) {
    more = read(file, out + n, size - 1 - n);
    n += more > 0 ? (size_t)more : 0;
  }
  if (file >= 0) close(file);
  out[n] = 0;
  return n;
}

// Returns the rank in the environment of a process; -1: it has none.
static int rank_in(int pid) {
  static char text[1 << 17];
  size_t n = read_proc(pid, "environ", text, sizeof text);
  for (const char *at = text; at < text + n; at += strlen(at) + 1) {
    if (strncmp(at, "PMI_RANK=", 9) == 0) return atoi(at + 9);
    if (strncmp(at, "OMPI_COMM_WORLD_RANK=", 21) == 0) return atoi(at + 21);
  }
  return -1;
}

static char state_of(int pid, int *out_parent) {
  char text[512], state = 'X';
  size_t n = read_proc(pid, "stat", text, sizeof text);
  const char *end = n ? strrchr(text, ')') : NULL;
  *out_parent = 0;
  if (end) sscanf(end + 1, " %c %d", &state, out_parent);
  return state;
}

// Returns the process that has started the ranks: the first ancestor without a rank.
static int launcher_of(int pid) {
  int parent;
  for (int hops = 0; hops < 32 && rank_in(pid) >= 0; hops++) {
    state_of(pid, &parent);
    pid = parent;
  }
  return pid;
}

// Whether a process has the memory file of a record open.
static bool has_record(int pid) {
  char path[64], to[64];
  bool found = false;
  snprintf(path, sizeof path, "/proc/%d/fd", pid);
  DIR *folder = opendir(path);
  for (struct dirent *e; folder && !found && (e = readdir(folder));) {
    ssize_t n = readlinkat(dirfd(folder), e->d_name, to, sizeof to - 1);
    to[n > 0 ? n : 0] = 0;
    found = strncmp(to, "/memfd:nnrt-rank", 16) == 0;
  }
  if (folder) closedir(folder);
  return found;
}

void nnrt_mpi_say_missing(const NnrtRun *run) {
  enum { ABSENT, STARTED, STOPPED, COME };
  const Launch *l = &run->launch;
  int *condition = nnrt_must_alloc((size_t)l->world * sizeof *condition);
  int *process = nnrt_must_alloc((size_t)l->world * sizeof *process), mine = launcher_of(getpid());
  DIR *folder = opendir("/proc");
  for (struct dirent *e; folder && (e = readdir(folder));) {
    int pid = atoi(e->d_name), parent, rank = pid > 0 ? rank_in(pid) : -1;
    if (rank < 0 || rank >= l->world || launcher_of(pid) != mine) continue;
    char state = state_of(pid, &parent);
    int now = state == 'T' || state == 't' ? STOPPED : has_record(pid) ? COME : STARTED;
    // A script around the program is a process, too.
    if (state == 'Z' || state == 'X' || now < condition[rank]) continue;
    condition[rank] = now;
    process[rank] = pid;
  }
  if (folder) closedir(folder);
  // Only ranks that are known to be of this machine can be missed here.
  int first = l->one_host ? 0 : l->rank - l->local_rank;
  int end = l->one_host ? l->world : first + l->local_world;
  char text[200] = "a rank of another machine is missing, or the network";
  for (int i = first < 0 ? 0 : first; i < end && i < l->world; i++) {
    if (condition[i] == COME) continue;
    const char *is = condition[i] == STOPPED ? "is stopped by a signal" : "has not called MPI_Init";
    if (condition[i] == ABSENT)
      snprintf(text, sizeof text, "rank %d has ended, or was never started", i);
    else
      snprintf(text, sizeof text, "rank %d on %.64s (pid %d) %s", i, run->peers->peer[l->rank].host,
               process[i], is);
    break;
  }
  nnrt_say_error("not all ranks have come within %g s (--connect-timeout): %s",
                 nnrt_connect_timeout(&run->flags), text);
  free(condition);
  free(process);
}
