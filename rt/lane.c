// The streams of a lane: see wire.h.

#include <stdlib.h>

#include "wire.h"

void nnrt_lane_open(Lane *l, int number, int ranks, _Atomic int64_t *moved) {
  // The first lane has the channels of both phases, the other one has one.
  *l = (Lane){.number = number, .ranks = ranks, .moved = moved};
  l->first_channel = number ? CHANNEL_ahead : CHANNEL_first;
  l->n_channels = number ? 1 : 2;
  size_t n = (size_t)l->n_channels * (size_t)ranks;
  l->pair = nnrt_must_alloc(n * sizeof *l->pair);
  l->busy = nnrt_must_alloc(n * sizeof *l->busy);
  for (size_t i = 0; i < n; i++) {
    // An empty stream ends at its own head.
    Pair *p = &l->pair[i];
    p->channel = l->first_channel + (int)i / ranks;
    p->peer = (int)i % ranks;
    p->out.end = &p->out.first;
    p->in.end = &p->in.first;
  }
}

void nnrt_lane_close(Lane *l) {
  free(l->pair);
  free(l->busy);
}

void nnrt_lane_add(Lane *l, int channel, Message *m) {
  Pair *p = &l->pair[(channel - l->first_channel) * l->ranks + m->peer];
  Stream *s = m->in ? &p->in : &p->out;
  m->next = NULL;
  *s->end = m;
  s->end = &m->next;
  if (l->n_busy == 0) l->since_us = nnrt_now_us();
  if (!p->busy) l->busy[l->n_busy++] = p;
  p->busy = true;
}

void nnrt_lane_tidy(Lane *l) {
  int n = 0;
  for (int i = 0; i < l->n_busy; i++) {
    // The others keep their order: a rank begins with the next one.
    Pair *p = l->busy[i];
    p->busy = p->out.first || p->in.first;
    if (p->busy) l->busy[n++] = p;
  }
  l->n_busy = n;
  l->n_ended = 0;
}

void nnrt_stream_moved(Lane *l, Stream *s, int64_t bytes) {
  atomic_fetch_add_explicit(l->moved, bytes, memory_order_relaxed);
  while (bytes > 0) {
    Message *m = s->first;
    int64_t n = bytes < m->left ? bytes : m->left;
    m->at += n;
    m->left -= n;
    bytes -= n;
    if (m->left > 0) return;
    // The rest of the bytes are of the messages after it.
    s->first = m->next;
    if (!s->first) s->end = &s->first;
    --*m->pending;
    l->n_ended++;
  }
}
