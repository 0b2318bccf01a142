// The emulated NCCL: runs calls, through shared memory.
//
// A collective runs in steps of at most CHUNK bytes.  In a step every rank posts a piece of its
// data in its own slot, waits until all have posted, reads from the others' slots, and reports that
// it has read; no rank posts again before all have reported.  Posts are labelled with the call, so
// ranks that call different operations get an error, while the real one hangs.  send and recv have
// a slot for each pair, and are done when the receiver has everything.

#include <stdio.h>
#include <string.h>

#include "nccl_internal.h"

// ---- Elements

__extension__ typedef _Float16 Half;

size_t nccl_size_of(int type) {
  switch ((ncclDataType_t)type) {
  case ncclInt8:
  case ncclUint8: return 1;
  case ncclFloat16:
  case ncclBfloat16: return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32: return 4;
  case ncclInt64:
  case ncclUint64:
  case ncclFloat64: return 8;
  case ncclFloat8e4m3:
  case ncclFloat8e5m2:
  case ncclNumTypes: break;
  }
  return 0;
}

static float from_bf16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float x;
  memcpy(&x, &wide, sizeof x);
  return x;
}

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = x != x ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
  return (uint16_t)(bits >> 16);
}

static double combine(double a, double b, int reduction) {
  switch ((ncclRedOp_t)reduction) {
  case ncclSum:
  case ncclAvg: return a + b;
  case ncclProd: return a * b;
  case ncclMax: return a > b || a != a ? a : b;
  case ncclMin: return a < b || a != a ? a : b;
  case ncclNumOps:
  case ncclMaxRedOp: break;
  }
  return 0;
}

// into = into (+) from.  Between two ranks the sum has the type of the elements.
static void reduce(char *into, const char *from, size_t n, int type, int reduction) {
#define FLOATS(T, READ, WRITE)                                                                     \
  for (size_t i = 0; i < n; i++) {                                                                 \
    T *a = (T *)into + i;                                                                          \
    const T *b = (const T *)from + i;                                                              \
    *a = WRITE((float)combine((double)READ(*a), (double)READ(*b), reduction));                     \
  }                                                                                                \
  return
#define INTEGERS(T, U)                                                                             \
  for (size_t i = 0; i < n; i++) {                                                                 \
    T *a = (T *)into + i, b = ((const T *)from)[i];                                                \
    *a = reduction == ncclSum    ? (T)((U)*a + (U)b)                                               \
         : reduction == ncclProd ? (T)((U)*a * (U)b)                                               \
         : reduction == ncclMax  ? (*a > b ? *a : b)                                               \
                                 : (*a < b ? *a : b);                                               \
  }                                                                                                \
  return
  switch ((ncclDataType_t)type) {
  case ncclFloat32: FLOATS(float, , );
  case ncclFloat16: FLOATS(Half, , (Half));
  case ncclBfloat16: FLOATS(uint16_t, from_bf16, to_bf16);
  case ncclFloat64:
    for (size_t i = 0; i < n; i++)
      ((double *)into)[i] = combine(((double *)into)[i], ((const double *)from)[i], reduction);
    return;
  case ncclInt8: INTEGERS(int8_t, unsigned);
  case ncclUint8: INTEGERS(uint8_t, unsigned);
  case ncclInt32: INTEGERS(int32_t, uint32_t);
  case ncclUint32: INTEGERS(uint32_t, uint32_t);
  case ncclInt64: INTEGERS(int64_t, uint64_t);
  case ncclUint64: INTEGERS(uint64_t, uint64_t);
  case ncclFloat8e4m3:
  case ncclFloat8e5m2:
  case ncclNumTypes: break;
  }
}

static void average(char *x, size_t n, int type, int ranks) {
  float f = 1.0f / (float)ranks;
  for (size_t i = 0; i < n; i++)
    switch ((ncclDataType_t)type) {
    case ncclFloat32: ((float *)x)[i] *= f; break;
    case ncclFloat64: ((double *)x)[i] /= ranks; break;
    case ncclFloat16: ((Half *)x)[i] = (Half)((float)((Half *)x)[i] * f); break;
    case ncclBfloat16: ((uint16_t *)x)[i] = to_bf16(from_bf16(((uint16_t *)x)[i]) * f); break;
    default: break; // refused
    }
}

// ---- Running

// The number of steps of a collective: `blocks` of count elements, each in pieces of a chunk.
static uint64_t pieces(const Call *c) {
  uint64_t most = CHUNK / nccl_size_of(c->label.type);
  return (c->label.count + most - 1) / most;
}

static uint64_t steps(const Call *c) {
  return pieces(c) * (c->label.kind == REDUCE_SCATTER ? (uint64_t)c->comm->n : 1);
}

static const char *describe(const Label *l, char *out, size_t bytes) {
  snprintf(out, bytes, "%s of %llu elements of type %d", nccl_kind_name[l->kind],
           (unsigned long long)l->count, l->type);
  return out;
}

static void check_labels(const Call *call) {
  ncclComm_t c = call->comm;
  for (int r = 0; r < c->n; r++) {
    const Label *other = &c->shared->slot[r].label;
    char a[100], b[100];
    if (memcmp(other, &call->label, sizeof *other))
      emulated_abort("nccl: ranks call different things: rank %d %s, rank %d %s", c->rank,
                     describe(&call->label, a, sizeof a), r, describe(other, b, sizeof b));
  }
}

// Runs one step, if all ranks have reached it; returns false otherwise.
static bool try_step(Call *call) {
  ncclComm_t c = call->comm;
  const Label *l = &call->label;
  size_t size = nccl_size_of(l->type), most = CHUNK / size;
  uint64_t n_pieces = pieces(call), piece = call->at % n_pieces, block = call->at / n_pieces;
  size_t first = (size_t)piece * most;
  size_t n = l->count - first < most ? (size_t)(l->count - first) : most;
  Slot *mine = &c->shared->slot[c->rank];
  if (!call->posted) {
    for (int r = 0; r < c->n; r++)
      if (atomic_load(&c->shared->slot[r].read) < c->step) return false;
    mine->label = *l;
    if (l->kind != BROADCAST || c->rank == l->root)
      memcpy(mine->data, call->from + (block * l->count + first) * size, n * size);
    atomic_store(&mine->posted, c->step + 1);
    call->posted = true;
  }
  for (int r = 0; r < c->n; r++)
    if (atomic_load(&c->shared->slot[r].posted) < c->step + 1) return false;
  check_labels(call);
  char *to = call->to + first * size;
  bool reduces = l->kind == ALL_REDUCE || (l->kind == REDUCE_SCATTER && (int)block == c->rank) ||
                 (l->kind == REDUCE && c->rank == l->root);
  if (reduces) {
    memcpy(to, c->shared->slot[0].data, n * size);
    for (int r = 1; r < c->n; r++)
      reduce(to, c->shared->slot[r].data, n, l->type, l->reduction);
    if (l->reduction == ncclAvg) average(to, n, l->type, c->n);
  }
  if (l->kind == BROADCAST) memcpy(to, c->shared->slot[l->root].data, n * size);
  if (l->kind == ALL_GATHER)
    for (int r = 0; r < c->n; r++)
      memcpy(to + (size_t)r * l->count * size, c->shared->slot[r].data, n * size);
  atomic_store(&mine->read, ++c->step);
  call->posted = false;
  return true;
}

static bool try_send(Call *call) {
  ncclComm_t c = call->comm;
  Pair *p = &c->shared->pair[c->rank][call->peer];
  uint64_t bytes = call->label.count * nccl_size_of(call->label.type);
  while (call->at < bytes) {
    if (atomic_load(&p->read) < c->sent[call->peer]) return false;
    uint64_t n = bytes - call->at < PAIR_CHUNK ? bytes - call->at : PAIR_CHUNK;
    p->bytes = bytes;
    memcpy(p->data, call->from + call->at, n);
    atomic_store(&p->posted, ++c->sent[call->peer]);
    call->at += n;
  }
  return atomic_load(&p->read) == c->sent[call->peer];
}

static bool try_recv(Call *call) {
  ncclComm_t c = call->comm;
  Pair *p = &c->shared->pair[call->peer][c->rank];
  uint64_t bytes = call->label.count * nccl_size_of(call->label.type);
  while (call->at < bytes) {
    if (atomic_load(&p->posted) == c->received[call->peer]) return false;
    if (p->bytes != bytes)
      emulated_abort("nccl: rank %d sends %llu bytes to rank %d, which wants %llu", call->peer,
                     (unsigned long long)p->bytes, c->rank, (unsigned long long)bytes);
    uint64_t n = bytes - call->at < PAIR_CHUNK ? bytes - call->at : PAIR_CHUNK;
    memcpy(call->to + call->at, p->data, n);
    atomic_store(&p->read, ++c->received[call->peer]);
    call->at += n;
  }
  return true;
}

bool nccl_is_message(const Call *c) {
  return c->label.kind == SEND || c->label.kind == RECV;
}

static bool try_call(Call *c) {
  if (c->label.kind == SEND) return try_send(c);
  if (c->label.kind == RECV) return try_recv(c);
  while (c->at < steps(c)) {
    if (!try_step(c)) return false;
    c->at++;
  }
  return true;
}

bool nccl_run_group(EmulatedWork *w, bool again) {
  Group *g = (Group *)w;
  for (int i = 0; i < g->n && !again; i++) {
    g->call[i].at = 0;
    g->call[i].posted = g->call[i].done = false;
  }
  if (!again) atomic_fetch_add(&g->comm->running, 1);
  bool all = true, collective_waits = false;
  for (int i = 0; i < g->n && !atomic_load(&g->comm->aborted); i++) {
    Call *c = &g->call[i];
    if (c->done) continue;
    // Messages between two ranks stay in order, and so do collectives.
    bool behind = !nccl_is_message(c) && collective_waits;
    for (int j = 0; j < i && nccl_is_message(c); j++)
      behind |=
          !g->call[j].done && g->call[j].label.kind == c->label.kind && g->call[j].peer == c->peer;
    if (!behind) c->done = try_call(c);
    collective_waits |= !nccl_is_message(c) && !c->done;
    all &= c->done;
  }
  if (all) atomic_fetch_sub(&g->comm->running, 1);
  return all;
}
