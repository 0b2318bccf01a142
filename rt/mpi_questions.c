// Questions between ranks of different machines over MPI: the activity of a rank that others wait
// for (stalls.c).
//
// Any thread may ask.  Only communicating threads call MPI, so one of them sends the question, and
// one of the asked rank answers, while they wait or are idle:
//
//     rank 3  ask ─→ next ─ talk ── TAG_ask ──→ talk ─ its record   rank 1
//                    came ─ talk ←─ TAG_answer ─┘

#include <time.h>

#include "mpi_wire.h"

enum { TAG_ask = 100, TAG_answer };

void nnrt_questions_open(Questions *q) {
  q->asks = -1;
  pthread_mutex_init(&q->one, NULL);
  pthread_mutex_init(&q->talking, NULL);
}

void nnrt_questions_close(Questions *q) {
  pthread_mutex_destroy(&q->talking);
  pthread_mutex_destroy(&q->one);
}

// Receives a short message that is there.
static bool take_message(MpiLibrary *m, int tag, void *out, int n) {
  Request r;
  int done = 0, code = nnrt_mpi_receive(m, tag, MPI_FROM_ANY, out, n, &r);
  while (!code && !done)
    code = nnrt_mpi_test(m, &r, &done);
  return !code;
}

// Whether the last message of this kind has left; until then its memory is in use.
static bool has_left(MpiLibrary *m, bool *io_sending, Request *r) {
  int done = 1;
  if (*io_sending && nnrt_mpi_test(m, r, &done)) done = 1;
  if (done) *io_sending = false;
  return done;
}

void nnrt_questions_talk(Questions *q, MpiLibrary *m, const Wire *wire) {
  enum { TURN_US = 100000 };
  double now = nnrt_now_us();
  if (pthread_mutex_trylock(&q->talking) != 0) return;
  if (now - q->talked_us >= TURN_US) {
    q->talked_us = now;
    if (q->asks >= 0 && has_left(m, &q->is_asking, &q->asking)) {
      q->question = q->next;
      q->is_asking =
          nnrt_mpi_send(m, TAG_ask, q->asks, &q->question, sizeof q->question, &q->asking) == 0;
      q->asks = -1;
    }
    Question asked;
    if (nnrt_mpi_is_there(m, TAG_ask) && has_left(m, &q->is_replying, &q->replying) &&
        take_message(m, TAG_ask, &asked, sizeof asked) && asked.from >= 0 &&
        asked.from < wire->world) {
      q->reply = (Reply){wire->rank, asked.number, nnrt_standing_of(wire->record, asked.lane)};
      q->is_replying =
          nnrt_mpi_send(m, TAG_answer, asked.from, &q->reply, sizeof q->reply, &q->replying) == 0;
    }
    if (nnrt_mpi_is_there(m, TAG_answer)) take_message(m, TAG_answer, &q->came, sizeof q->came);
  }
  pthread_mutex_unlock(&q->talking);
}

bool nnrt_questions_ask(Questions *q, const Wire *wire, int rank, int lane, double seconds,
                        Standing *out) {
  // The next question would overwrite one that has not left yet.
  pthread_mutex_lock(&q->one);
  double until = nnrt_now_us() + seconds * 1e6;
  pthread_mutex_lock(&q->talking);
  int number = q->next.number + 1;
  q->next = (Question){wire->rank, lane, number};
  q->asks = rank;
  pthread_mutex_unlock(&q->talking);
  bool came = false;
  while (!came && nnrt_now_us() < until) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    pthread_mutex_lock(&q->talking);
    came = q->came.number == number && q->came.from == rank;
    if (came) *out = q->came.standing;
    pthread_mutex_unlock(&q->talking);
  }
  pthread_mutex_unlock(&q->one);
  return came;
}
