// Text in signal handlers; see signal_safe.h.

#include <unistd.h>

#include "peers.h"
#include "signal_safe.h"

void nnrt_safe_add(SafeText *t, const char *more) {
  for (; *more && t->n < t->size; more++)
    t->at[t->n++] = *more == '\n' || (unsigned char)*more >= ' ' ? *more : '?';
}

void nnrt_safe_add_number(SafeText *t, long long x) {
  char digits[24], *at = digits + sizeof digits - 1;
  *at = 0;
  do
    *--at = (char)('0' + x % 10);
  while ((x /= 10) > 0);
  nnrt_safe_add(t, at);
}

void nnrt_safe_add_hex(SafeText *t, uintptr_t x) {
  char digits[24], *at = digits + sizeof digits - 1;
  *at = 0;
  do
    *--at = "0123456789abcdef"[x % 16];
  while ((x /= 16) > 0);
  nnrt_safe_add(t, "0x");
  nnrt_safe_add(t, at);
}

void nnrt_safe_add_rank(SafeText *t, const NnrtRank *r) {
  nnrt_safe_add(t, r ? "rank " : "no rank");
  if (r) nnrt_safe_add_number(t, r->rank);
}

void nnrt_safe_add_thread(SafeText *t, const NnrtRank *r, const char *role) {
  nnrt_safe_add_rank(t, r);
  if (r && r->run->peers) {
    nnrt_safe_add(t, " on ");
    nnrt_safe_add(t, r->run->peers->peer[r->rank].host);
  }
  nnrt_safe_add(t, " (pid ");
  nnrt_safe_add_number(t, getpid());
  nnrt_safe_add(t, "), ");
  nnrt_safe_add(t, role);
  if (!r || !r->graph) return;
  const NnrtGraph *g = r->graph;
  int op = r->op ? __atomic_load_n(r->op, __ATOMIC_RELAXED) : -1;
  if (op >= 0 && op < g->n_ops) {
    nnrt_safe_add(t, ", in '");
    nnrt_safe_add(t, g->ops[op]);
    nnrt_safe_add(t, "'");
  }
  nnrt_safe_add(t, " of step ");
  nnrt_safe_add_number(t, r->step + 1);
}

void nnrt_safe_print(const SafeText *t) {
  for (ssize_t done = 0, step; done < (ssize_t)t->n; done += step)
    if ((step = write(STDERR_FILENO, t->at + done, t->n - (size_t)done)) <= 0) break;
}
