// Counts the transitions for which a path has the least possible cost, and computes how much more
// expensive other methods are.
//
//     count_paths          those of 1-D and 2-D tensors between four devices; part of the tests
//     count_paths --all    the 63504 of tests/passes/transitions.py, over four clusters
//     count_paths --rest   with the exhaustive search also for 2-D and 3-D tensors and 8 devices
//
// A transition is a layout of a mesh, partial sums included, and a reader's layout on the same or
// on other devices.  Every one is compared with
//
//     exhaustive     the least over all states of all primitives, or send/recv alone (reach.h):
//                    `matched` costs the same; `improved` less, by send/recv after or before a
//                    primitive; `dearer` more, which is an error
//     mixed          the same if send/recv may follow any state: the number that are dearer than that
//     p2p            send/recv of intersections alone
//     replicate      full replication by the cheapest path, and then the path to the target
//
// and the factor is the median of the other method's cost divided by ours, if it is not free.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "paths/path.h"
#include "reach.h"

enum { LAYOUTS = 400, MESHES = 4 };

typedef struct Devices {
  const char *text;
  int n, at[8];
} Devices;

typedef struct Between {
  Devices from, to;
} Between;

static const Between groups[] = {
    {{"0-3", 4, {0, 1, 2, 3}}, {"0-3", 4, {0, 1, 2, 3}}},
    {{"0-3", 4, {0, 1, 2, 3}}, {"4-7", 4, {4, 5, 6, 7}}},
    {{"0-3", 4, {0, 1, 2, 3}}, {"3,2,1,0", 4, {3, 2, 1, 0}}},
    {{"0-3", 4, {0, 1, 2, 3}}, {"8-15", 8, {8, 9, 10, 11, 12, 13, 14, 15}}},
    {{"8-15", 8, {8, 9, 10, 11, 12, 13, 14, 15}}, {"0-3", 4, {0, 1, 2, 3}}},
    {{"0-3", 4, {0, 1, 2, 3}}, {"2-9", 8, {2, 3, 4, 5, 6, 7, 8, 9}}},
    {{"0-7", 8, {0, 1, 2, 3, 4, 5, 6, 7}}, {"0-7", 8, {0, 1, 2, 3, 4, 5, 6, 7}}},
    {{"0-7", 8, {0, 1, 2, 3, 4, 5, 6, 7}}, {"8-15", 8, {8, 9, 10, 11, 12, 13, 14, 15}}},
};
enum { N_GROUPS = sizeof groups / sizeof *groups };

// One node; nodes of eight; nodes of two that share a slow network adapter.
static const char *const clusters[] = {"h100:1x16", "h100:2x8", INPUTS "/ethernet.lua",
                                       INPUTS "/unlike.lua"};
enum { N_CLUSTERS = sizeof clusters / sizeof *clusters };

// Latency-bound and bandwidth-bound sizes.
static const TensorShape shapes[][3] = {
    {{1, {16384}, 4}, {2, {128, 128}, 4}, {3, {32, 32, 16}, 4}},
    {{1, {1 << 24}, 4}, {2, {4096, 4096}, 4}, {3, {256, 256, 256}, 4}},
};

// -- All layouts ---------------------------------------------------------------------------------

// Layouts of different factorings of the mesh may be the same placement: `times` counts them.
typedef struct List {
  int n;
  Placement at[LAYOUTS];
  int times[LAYOUTS];
} List;

static void add(List *l, const Placement *p) {
  for (int i = 0; i < l->n; i++) {
    const Placement *q = &l->at[i];
    if (p->copies != q->copies || p->shares != q->shares ||
        memcmp(p->part, q->part, sizeof p->part) ||
        memcmp(p->device, q->device, sizeof *p->device * (size_t)p->n))
      continue;
    l->times[i]++;
    return;
  }
  l->times[l->n] = 1;
  l->at[l->n++] = *p;
}

// Returns the placement of a layout with one letter per axis: 'B', 'P', or a dimension.
static Placement placement_of(Arena *a, const Devices *d, const int *size, int n_axes,
                              const char *letter) {
  Placement p = {.copies = 1, .shares = 1, .n = d->n};
  for (int i = 0; i < PLACEMENT_DIMS; i++)
    p.part[i] = 1;
  int order[3], stride[3], n = 0, *device = arena_array(a, int, d->n);
  for (int i = n_axes - 1, all = 1; i >= 0; all *= size[i--])
    stride[i] = all;
  for (const char *kind = "BP012"; *kind; kind++)
    for (int i = 0; i < n_axes; i++) {
      if (letter[i] != *kind) continue;
      order[n++] = i;
      *(*kind == 'B' ? &p.copies : *kind == 'P' ? &p.shares : &p.part[*kind - '0']) *= size[i];
    }
  for (int at = 0; at < d->n; at++) {
    int position = 0, left = at;
    for (int i = n_axes - 1; i >= 0; left /= size[order[i--]])
      position += left % size[order[i]] * stride[order[i]];
    device[at] = d->at[position];
  }
  p.device = device;
  return p;
}

static void add_layouts(Arena *a, const Devices *d, const int *size, int n_axes, const char *kinds,
                        List *out) {
  int n_kinds = (int)strlen(kinds), n = 1;
  for (int i = 0; i < n_axes; i++)
    n *= n_kinds;
  for (int code = 0; code < n; code++) {
    char letter[3];
    for (int i = 0, left = code; i < n_axes; i++, left /= n_kinds)
      letter[i] = kinds[left % n_kinds];
    Placement p = placement_of(a, d, size, n_axes, letter);
    add(out, &p);
  }
}

static List layouts_of(Arena *a, const Devices *d, int ndim, bool sums) {
  static const int four[][3] = {{4}, {2, 2}}, eight[][3] = {{8}, {2, 4}, {4, 2}, {2, 2, 2}};
  char kinds[8];
  snprintf(kinds, sizeof kinds, "B%s%.*s", sums ? "P" : "", ndim, "012");
  List l = {0};
  for (int i = 0; i < (d->n == 4 ? 2 : 4); i++) {
    const int *size = d->n == 4 ? four[i] : eight[i];
    add_layouts(a, d, size, !size[1] ? 1 : !size[2] ? 2 : 3, kinds, &l);
  }
  return l;
}

// -- Counting ------------------------------------------------------------------------------------

typedef Vec(double) Factors;

typedef struct Count {
  int n, searched, matched, improved, dearer, mixed;
  int p2p_less, replicate_less; // the path is cheaper
  int p2p_more, replicate_more; // the path is more expensive: an error
  Factors p2p, replicate;
} Count;

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(Factors *f) {
  if (!f->n) return 1;
  qsort(f->at, (size_t)f->n, sizeof *f->at, compare);
  return f->at[f->n / 2];
}

// Path costs are rounded to picoseconds.
static bool less(double a, double b) {
  return a < b * (1 - 1e-9) - 1e-11;
}

// Counts a comparison `n` times.
static void compare_with(double own, double other, int n, Arena *a, int *n_less, int *n_more,
                         Factors *factors) {
  *n_less += less(own, other) ? n : 0;
  *n_more += less(other, own) ? n : 0;
  for (int i = 0; i < n && other > 0; i++)
    vec_push(a, factors, own > 0 ? other / own : INFINITY);
}

static const char *placement_text(Arena *a, const Placement *p, int ndim) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "R(%d)V(%d)D(", p->copies, p->shares);
  for (int i = 0; i < ndim; i++)
    strbuf_addf(&b, "%s%d", i ? "," : "", p->part[i]);
  strbuf_addf(&b, ")@%s", devices_text(a, p->device, p->n));
  return b.at;
}

typedef struct Case {
  Arena *arena;
  const Cluster *c;
  Paths *paths;
  const TensorShape *shape;
} Case;

// Finds and counts the path from one placement to another.
static const Path *count_pair(const Case *k, const Placement *from, const Placement *to, int n,
                              Count *out) {
  Placement all = {.copies = from->n, .shares = 1, .n = from->n, .device = from->device};
  for (int i = 0; i < PLACEMENT_DIMS; i++)
    all.part[i] = 1;
  const Path *p = path_find(k->paths, k->shape, from, to);
  double replicate = path_find(k->paths, k->shape, from, &all)->total.seconds +
                     path_find(k->paths, k->shape, &all, to)->total.seconds;
  compare_with(p->total.seconds, p->p2p.seconds, n, k->arena, &out->p2p_less, &out->p2p_more,
               &out->p2p);
  compare_with(p->total.seconds, replicate, n, k->arena, &out->replicate_less, &out->replicate_more,
               &out->replicate);
  out->n += n;
  return p;
}

// Counts the paths from the i-th placement to all others.
static void count_from(const Case *k, const List *from, int i, const List *to, bool exhaustive,
                       Count *out) {
  const Path *path[LAYOUTS];
  double limit[LAYOUTS], pure[LAYOUTS], mixed[LAYOUTS];
  for (int j = 0; j < to->n; j++) {
    path[j] = count_pair(k, &from->at[i], &to->at[j], from->times[i] * to->times[j], out);
    limit[j] = path[j]->total.seconds * (1 + 1e-9) + 1e-11;
  }
  if (!exhaustive) return;
  reach(k->c, k->shape, &from->at[i], to->at, to->n, limit, pure, mixed);
  for (int j = 0; j < to->n; j++) {
    int n = from->times[i] * to->times[j];
    double own = path[j]->total.seconds, least = fmin(pure[j], path[j]->p2p.seconds);
    out->mixed += less(mixed[j], own) ? n : 0;
    out->searched += n;
    out->matched += !less(own, least) && !less(least, own) ? n : 0;
    out->improved += less(own, least) ? n : 0;
    if (less(least, own) && !out->dearer)
      printf("dearer: %s to %s, %d dimensions: %g s, exhaustive %g s\n",
             placement_text(k->arena, &from->at[i], k->shape->ndim),
             placement_text(k->arena, &to->at[j], k->shape->ndim), k->shape->ndim, own, least);
    out->dearer += less(least, own) ? n : 0;
  }
}

static bool count(const char *cluster, int size, int ndim, const Between *b, bool exhaustive) {
  Case k = {.arena = arena_new(), .shape = &shapes[size][ndim - 1]};
  Diag *d = diag_new(stderr);
  k.c = cluster_read(k.arena, cluster, "cluster", d);
  k.paths = paths_new(k.arena, k.c);
  List from = layouts_of(k.arena, &b->from, ndim, true),
       to = layouts_of(k.arena, &b->to, ndim, false);
  Count c = {0};
  for (int i = 0; i < from.n; i++)
    count_from(&k, &from, i, &to, exhaustive, &c);
  printf("%-10s %5s %4d %5s to %-8s %6d %6d %8d %8d %6d %6d   %6d %6.3g   %6d %6.3g\n", cluster,
         size ? "large" : "small", ndim, b->from.text, b->to.text, c.n, c.searched, c.matched,
         c.improved, c.dearer, c.mixed, c.p2p_less, median(&c.p2p), c.replicate_less,
         median(&c.replicate));
  fflush(stdout);
  bool ok = !c.dearer && !c.p2p_more && !c.replicate_more;
  if (c.p2p_more || c.replicate_more)
    printf("dearer than p2p: %d, than replicating: %d\n", c.p2p_more, c.replicate_more);
  diag_free(d);
  arena_free(k.arena);
  return ok;
}

typedef enum Much { QUICK, MOST, EVERYTHING } Much;

static void print_heads(void) {
  printf("%-10s %5s %4s %5s    %-8s %6s %6s %8s %8s %6s %6s   %13s   %13s\n", "cluster", "bytes",
         "rank", "from", "to", "n", "search", "matched", "improved", "dearer", "mixed",
         "p2p, factor", "replicate, f.");
}

int main(int argc, char **argv) {
  const char *option = argc > 1 ? argv[1] : "";
  Much much = !strcmp(option, "--rest") ? EVERYTHING : !strcmp(option, "--all") ? MOST : QUICK;
  bool ok = true;
  print_heads();
  for (int c = 0; c < N_CLUSTERS; c++)
    for (int size = 0; size < 2; size++)
      for (int ndim = 1; ndim <= 3; ndim++)
        for (int i = 0; i < N_GROUPS; i++) {
          bool four = groups[i].from.n == 4 && groups[i].to.n == 4;
          bool exhaustive = four || ndim == 1 || much == EVERYTHING;
          if (much != QUICK || (four && ndim < 3))
            ok = count(clusters[c], size, ndim, &groups[i], exhaustive) && ok;
        }
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
