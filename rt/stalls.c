// Names the rank that keeps a stalled job waiting.
//
// A rank that has waited too long knows the rank that it waits for, and that one may wait in turn:
//
//     rank 3 ─ waits for ─→ rank 1 ─ waits for ─→ rank 2, which is stopped in op 7
//
// So the chain is followed, from record to record (peers.h), or by questions to ranks of other
// machines.  It ends at a rank that
//
//     is stopped         /proc says so
//     does not answer    it, its machine or the network is stopped
//     is gone            its process has ended
//     computes           it has not come to the communication that the others are in
//     reads files        rank 0 may write a checkpoint for any time: the wait is in order
//     was named before   ranks wait for each other; if bytes move between them, the wait is in order
//
// Ranks move while the chain is followed, and a communicating thread notes a wait some time after
// it began.  So a chain that ends at a busy rank is followed again.

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm.h"

enum { SETTLE_TURNS = 30, TURN_MS = 100, CIRCLE_TURNS = 20, CONFIRMED = 3 };

// A circle that was found: the bytes that its ranks have moved, and in how many turns they did not.
typedef struct Circle {
  int64_t moved;
  int turns;
} Circle;

Standing nnrt_standing_of(const RankRecord *record, int lane) {
  Standing s = {.known = 1, .waits_for = -1, .lane = lane};
  nnrt_record_last_op(record, s.last_op);
  s.files = atomic_load(&record->files);
  if (lane < 0 || lane >= RECORD_LANES) lane = 0;
  // Without a job on this lane the rank has not come to it: its own thread may wait on another.
  if (!atomic_load(&record->lane[lane].active)) {
    lane = atomic_load(&record->waits_in);
    if (lane < 0) return s;
  }
  s.lane = lane;
  s.waits_for = atomic_load(&record->lane[lane].waits_for);
  s.moved = atomic_load(&record->lane[lane].moved);
  s.busy = s.waits_for < 0;
  return s;
}

// Returns the time that a rank has to answer: a busy machine may run it late.
static double answer_seconds(double timeout) {
  double seconds = timeout / 4;
  return seconds < 3 ? 3 : seconds > 30 ? 30 : seconds;
}

static Standing look(NnrtComm *c, int rank, int lane, double seconds) {
  const Peers *p = c->rank->run->peers;
  Standing s = {.waits_for = -1, .lane = lane};
  if (p->peer[rank].record) return nnrt_standing_of(p->peer[rank].record, lane);
  if (c->transport == &nnrt_comm_processes)
    c->wire->ask(c->wire, rank, lane, answer_seconds(seconds), &s);
  s.last_op[sizeof s.last_op - 1] = 0;
  if (s.waits_for >= p->n) s.waits_for = -1;
  return s;
}

// Writes the end of the chain: `rank`, and its condition.  False: it may take its time.
static bool tell(NnrtComm *c, int rank, const Standing *s, char *text, size_t size) {
  const Peers *p = c->rank->run->peers;
  char who[WHO_TEXT], state = nnrt_peer_state(p, rank);
  const char *condition = NULL;
  nnrt_peer_who(p, rank, who);
  if (state == 'T') condition = "is stopped by a signal";
  if (state == 't') condition = "is stopped by a debugger";
  if (state == 'Z' || state == 'X') condition = "has ended";
  if (!condition) {
    if (s->known && s->files) return false;
    condition = s->known ? "has not come to this communication"
                         : "does not answer: it, its machine or the network is stopped";
  }
  snprintf(text, size, "%s %s%s%s", who, condition, *s->last_op ? "; " : "", s->last_op);
  return true;
}

// Follows the chain once, or for the last time.  Returns 1: `text` is complete, 0: the wait is in
// order, -1: a rank on it moves.
static int follow(NnrtComm *c, int lane, double seconds, bool last, Circle *circle, char *text,
                  size_t size) {
  const Peers *p = c->rank->run->peers;
  int me = c->rank->rank, rank = me, next = -1;
  char who[WHO_TEXT];
  Standing s = nnrt_standing_of(c->record, lane);
  int64_t moved = s.moved;
  bool files = s.files;
  // A longer chain is a circle.
  for (int hop = 0; hop <= p->n; hop++) {
    if (s.busy) return -1;
    next = s.waits_for;
    if (next < 0) return tell(c, rank, &s, text, size);
    if (next == me) break;
    // A process that is stopped may have waited before, and one that was killed.
    char state = nnrt_peer_state(p, next);
    rank = next;
    s = look(c, rank, s.lane, seconds);
    moved += s.moved;
    files |= s.files;
    // One that has ended may have told the reason, which arrives.
    if ((state == 'Z' || state == 'X') && !last) return -1;
    if (state == 'T' || state == 't' || state == 'Z' || state == 'X')
      return tell(c, rank, &s, text, size);
    // Rank 0 passes questions on: without its answer, others cannot answer.
    if (!s.known && rank != 0 && me != 0 && c->wire->relays) {
      Standing first = look(c, 0, 0, seconds);
      if (!first.known) return tell(c, 0, &first, text, size);
    }
    if (!s.known) return tell(c, rank, &s, text, size);
  }
  if (files || (circle->turns && moved != circle->moved)) return 0;
  circle->moved = moved;
  if (++circle->turns < CIRCLE_TURNS) return -1;
  nnrt_peer_who(p, rank, who);
  snprintf(text, size, "%s waits for rank %d, and both in a circle", who, next);
  return 1;
}

static void name_timeout(double seconds, char *text, size_t size) {
  char rest[900];
  snprintf(rest, sizeof rest, "%s", text);
  snprintf(text, size, "no progress for %g seconds (--stall-timeout): %s", seconds, rest);
}

bool nnrt_stall_find(NnrtComm *c, int lane, double seconds, char *text, size_t size) {
  pthread_mutex_lock(&c->lock);
  int64_t done = c->queue[lane].n_done;
  pthread_mutex_unlock(&c->lock);
  int found = -1, times = 0;
  Circle circle = {0};
  for (int turn = 0; turn < SETTLE_TURNS && found < 0; turn++) {
    if (turn > 0) nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000L}, NULL);
    found = follow(c, lane, seconds, turn + 1 == SETTLE_TURNS, &circle, text, size);
    // The wait may be over meanwhile.
    pthread_mutex_lock(&c->lock);
    bool over = c->queue[lane].n_done != done || c->code;
    pthread_mutex_unlock(&c->lock);
    if (over) return false;
    // A rank that has just written its files leaves them before the others know.
    if (found > 0 && ++times < CONFIRMED && turn + 1 < SETTLE_TURNS) found = -1;
  }
  // Its own communicating thread is busy, or that of a rank on the chain.
  if (found < 0) snprintf(text, size, "another rank is gone or stopped");
  if (found) name_timeout(seconds, text, size);
  return found != 0;
}

void nnrt_stall_find_any(NnrtComm *c, double seconds, char *text, size_t size) {
  const Peers *p = c->rank->run->peers;
  int me = c->rank->rank, last = -1;
  Standing behind = {0};
  int64_t least = 0;
  for (int i = 0; i < p->n; i++) {
    if (i == me) continue;
    Standing s = look(c, i, 0, seconds);
    char state = nnrt_peer_state(p, i);
    bool stopped = state == 'T' || state == 't' || state == 'Z' || state == 'X';
    if (stopped || !s.known) {
      tell(c, i, &s, text, size);
      name_timeout(seconds, text, size);
      return;
    }
    // Otherwise the one that is steps behind, if its step is known.
    const RankRecord *record = p->peer[i].record;
    int64_t step = record ? atomic_load(&record->step) : INT64_MAX;
    if (record && (last < 0 || step < least)) {
      last = i;
      least = step;
      behind = s;
    }
  }
  if (last < 0 || least >= atomic_load(&c->record->step) || !tell(c, last, &behind, text, size))
    snprintf(text, size, "another rank is gone or stopped");
  name_timeout(seconds, text, size);
}

void nnrt_wait_warn(const Peers *p, int rank, int other, double since_us, bool *io_warned) {
  char who[WHO_TEXT];
  if (*io_warned || nnrt_now_us() - since_us < 60e6) return;
  *io_warned = true;
  nnrt_peer_who(p, other, who);
  nnrt_say_warning("rank %d has waited a minute for %s", rank, who);
}
