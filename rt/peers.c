// Records of ranks, and their exchange: see peers.h.

#include "peers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm.h"

// ---- the own records

static const NnrtGraph *graph_of(const NnrtProgram *p, int graph) {
  return graph ? &p->eval : &p->train;
}

// Returns the size of a record with offsets and names of all operations after it.
static int64_t whole_size(const NnrtProgram *p) {
  int64_t bytes = (int64_t)sizeof(RankRecord);
  for (int g = 0; g < 2; g++)
    for (int i = 0; i < graph_of(p, g)->n_ops; i++)
      bytes += (int64_t)sizeof(int64_t) + (int64_t)strlen(graph_of(p, g)->ops[i]) + 1;
  return bytes;
}

static void add_names(RankRecord *record, const NnrtProgram *p, int64_t bytes) {
  int64_t *offset = (int64_t *)(record + 1);
  int64_t at = (int64_t)sizeof *record + (p->train.n_ops + p->eval.n_ops) * (int64_t)sizeof *offset;
  for (int g = 0; g < 2; g++)
    for (int i = 0; i < graph_of(p, g)->n_ops; i++) {
      size_t n = strlen(graph_of(p, g)->ops[i]) + 1;
      memcpy((char *)record + at, graph_of(p, g)->ops[i], n);
      *offset++ = at;
      at += (int64_t)n;
    }
  record->bytes = bytes;
}

static int record_file = -1; // of this process; -1: other processes cannot map it

static RankRecord *map_shared(int64_t bytes) {
  record_file = memfd_create("nnrt-rank", MFD_CLOEXEC);
  if (record_file < 0) return NULL;
  void *at = ftruncate(record_file, bytes) == 0
                 ? mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, record_file, 0)
                 : MAP_FAILED;
  if (at != MAP_FAILED) return at;
  close(record_file);
  record_file = -1;
  return NULL;
}

static RankRecord *new_record(const NnrtProgram *p, int rank, bool shared) {
  int64_t bytes = whole_size(p);
  RankRecord *record = shared ? map_shared(bytes) : NULL;
  if (record)
    add_names(record, p, bytes);
  else
    record = nnrt_must_alloc(sizeof *record);
  // Without random bytes the id is zeros and the pid.
  if (getrandom(record->id, sizeof record->id, GRND_NONBLOCK) < 0)
    memset(record->id, 0, sizeof record->id);
  record->rank = rank;
  record->pid = (int32_t)getpid();
  record->program = p;
  record->n_ops[0] = p->train.n_ops;
  record->n_ops[1] = p->eval.n_ops;
  record->op = -1;
  record->waits_in = -1;
  record->step = -1;
  record->files = 1; // until the first step: checks and checkpoints are read
  for (int i = 0; i < RECORD_LANES; i++)
    record->lane[i].waits_for = -1;
  return record;
}

Peers *nnrt_peers_new(const NnrtProgram *p, int n, int first, int here, bool shared) {
  Peers *peers = nnrt_must_alloc(sizeof *peers + (size_t)n * sizeof *peers->peer);
  peers->n = n;
  for (int i = first; i < first + here; i++) {
    Peer *peer = &peers->peer[i];
    gethostname(peer->host, sizeof peer->host - 1);
    peer->pid = (int)getpid();
    peer->record = new_record(p, i, shared);
  }
  return peers;
}

RankRecord *nnrt_record_of(const NnrtRank *r) {
  // This process has made it.
  return (RankRecord *)(uintptr_t)r->run->peers->peer[r->rank].record;
}

int *nnrt_record_op(const NnrtRank *r) {
  return &nnrt_record_of(r)->op;
}

void nnrt_record_step(const NnrtRank *r) {
  RankRecord *record = nnrt_record_of(r);
  // The number of an operation is one of the graph: it is none until the first has begun.
  __atomic_store_n(&record->op, -1, __ATOMIC_SEQ_CST);
  atomic_store(&record->graph, r->graph == &r->program->eval);
  atomic_store(&record->step, r->step);
}

// ---- the records of others

// As a rank sends it to the others.
typedef struct Card {
  char host[PEER_HOST];
  unsigned char id[16];
  int32_t pid, file;
} Card;

// Maps the record of a process of this machine; NULL if the file is not that record.
static const RankRecord *map_record(Peer *peer, const Card *card, int rank) {
  struct stat s;
  snprintf(peer->file, sizeof peer->file, "/proc/%d/fd/%d", card->pid, card->file);
  int file = card->file < 0 ? -1 : open(peer->file, O_RDONLY | O_CLOEXEC);
  if (file < 0) return NULL;
  void *at = fstat(file, &s) == 0 && s.st_size >= (off_t)sizeof(RankRecord)
                 ? mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_SHARED, file, 0)
                 : MAP_FAILED;
  close(file);
  if (at == MAP_FAILED) return NULL;
  const RankRecord *record = at;
  peer->inode = s.st_ino;
  if (record->rank == rank && record->pid == card->pid && record->bytes == s.st_size &&
      memcmp(record->id, card->id, sizeof card->id) == 0)
    return record;
  munmap(at, (size_t)s.st_size);
  return NULL;
}

int nnrt_peers_meet(Peers *p, NnrtRank *r) {
  const Peer *me = &p->peer[r->rank];
  Card mine = {.pid = me->pid, .file = record_file}, *all;
  memcpy(mine.host, me->host, sizeof mine.host);
  memcpy(mine.id, me->record->id, sizeof mine.id);
  all = nnrt_must_alloc((size_t)p->n * sizeof *all);
  int code = nnrt_comm_do(r->comm, (Job){JOB_all_gather, &r->comm->world, all, &mine, sizeof mine,
                                         NNRT_u8, .everyone = true});
  for (int i = 0; i < p->n && !code; i++) {
    if (i == r->rank) continue;
    Peer *peer = &p->peer[i];
    memcpy(peer->host, all[i].host, sizeof peer->host);
    peer->host[sizeof peer->host - 1] = 0;
    peer->pid = all[i].pid;
    if (strcmp(peer->host, me->host) == 0) peer->record = map_record(peer, &all[i], i);
  }
  free(all);
  return code;
}

// ---- texts

void nnrt_peer_who(const Peers *p, int rank, char out[WHO_TEXT]) {
  const Peer *peer = &p->peer[rank];
  int n = snprintf(out, WHO_TEXT, "rank %d", rank);
  if (*peer->host) n += snprintf(out + n, (size_t)(WHO_TEXT - n), " on %s", peer->host);
  if (peer->pid) snprintf(out + n, (size_t)(WHO_TEXT - n), " (pid %d)", peer->pid);
}

// Returns the name of an operation; NULL: there is none.
static const char *name_of(const RankRecord *record, int graph, int op) {
  bool own = record->pid == (int32_t)getpid();
  if (graph < 0 || graph > 1 || op < 0 || op >= record->n_ops[graph]) return NULL;
  if (own) return graph_of(record->program, graph)->ops[op];
  const int64_t *offset = (const int64_t *)(record + 1);
  int64_t at = offset[op + (graph ? record->n_ops[0] : 0)];
  return at > 0 && at < record->bytes ? (const char *)record + at : NULL;
}

void nnrt_record_last_op(const RankRecord *record, char out[LAST_OP_TEXT]) {
  int graph = atomic_load(&record->graph), op = __atomic_load_n(&record->op, __ATOMIC_RELAXED);
  long long step = (long long)atomic_load(&record->step) + 1;
  const char *name = name_of(record, graph, op), *of = graph ? "an evaluation after " : "";
  if (step == 0)
    snprintf(out, LAST_OP_TEXT, "it has begun no step");
  else if (name)
    snprintf(out, LAST_OP_TEXT, "its last operation is '%.160s' of %sstep %lld", name, of, step);
  else
    snprintf(out, LAST_OP_TEXT, "it has begun no operation of %sstep %lld", of, step);
}

// ---- processes

char nnrt_peer_state(const Peers *p, int rank) {
  const Peer *peer = &p->peer[rank];
  char path[64], text[512];
  if (!peer->record || peer->pid == (int)getpid()) return '?';
  snprintf(path, sizeof path, "/proc/%d/stat", peer->pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT ? 'X' : '?';
  ssize_t n = read(file, text, sizeof text - 1);
  close(file);
  if (n <= 0) return 'X';
  text[n] = 0;
  // The name of the program, in parentheses, may have any characters.
  const char *end = strrchr(text, ')');
  return end && end[1] == ' ' && end[2] ? end[2] : '?';
}

void nnrt_peers_signal(const Peers *p, int number) {
  for (int i = 0; i < p->n; i++) {
    const Peer *peer = &p->peer[i];
    struct stat s;
    if (!peer->record || peer->pid == (int)getpid()) continue;
    // A process that has ended may have left its number to another.
    if (stat(peer->file, &s) == 0 && s.st_ino == peer->inode) kill(peer->pid, number);
  }
}
