// Clusters by name, see clusters.def.

#include "cluster.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

// The name of a row has '-' for '_'.
#define CLUSTER(name_, node, nics_, in_s, in_gb, across_s, across_gb, start_, gb, reserve_, gb_s,  \
                f32_, half_, share_, launch_, host_, nvls_, gpus_, target_)                        \
  {.name = #name_,                                                                                 \
   .per_node = node,                                                                               \
   .nics = nics_,                                                                                  \
   .inside = {in_s, 1e-9 / (in_gb)},                                                               \
   .across = {across_s, 1e-9 / (across_gb)},                                                       \
   .start = start_,                                                                                \
   .memory = ((gb) - (reserve_)) * 1e9,                                                            \
   .reserve = (reserve_)*1e9,                                                                      \
   .memory_speed = (gb_s)*1e9,                                                                     \
   .f32 = (f32_)*1e12,                                                                             \
   .half = (half_)*1e12,                                                                           \
   .half_efficiency = share_,                                                                      \
   .launch = launch_,                                                                              \
   .host = (host_)*1e9,                                                                            \
   .nvls = nvls_,                                                                                  \
   .gpus = gpus_,                                                                                  \
   .cpus = !(gpus_),                                                                               \
   .predicted_only = !(target_)},
static const Cluster table[] = {
#include "clusters.def"
};
enum { N_CLUSTERS = sizeof table / sizeof *table };

// Whether the name is that of the row, or that with its measured share.
static bool names_row(const char *name, const Cluster *row, bool *measured) {
  static const char with[] = "-measured";
  size_t n = strlen(row->name);
  for (size_t i = 0; i < n; i++)
    if (name[i] != (row->name[i] == '_' ? '-' : row->name[i])) return false;
  *measured = str_equal(name + n, with);
  return *measured || !name[n];
}

// Reads the "4x8" after the colon.
static bool read_sizes(const char *text, Cluster *c) {
  char *end;
  if (!isdigit((unsigned char)*text)) return false;
  long nodes = strtol(text, &end, 10);
  if (*end != 'x' || !isdigit((unsigned char)end[1])) return false;
  long per_node = strtol(end + 1, &end, 10);
  if (*end || nodes < 1 || per_node < 1 || nodes > CLUSTER_DEVICES ||
      per_node > CLUSTER_DEVICES / nodes)
    return false;
  c->nodes = (int)nodes;
  c->per_node = (int)per_node;
  // A node has no more adapters than devices.
  if (c->nics > c->per_node) c->nics = c->per_node;
  return true;
}

bool cluster_is_file(const char *text) {
  return str_ends(text, ".lua");
}

const Cluster *cluster_read_named(Arena *a, const char *text, const Loc *loc, Diag *d) {
  const char *colon = strchr(text, ':');
  size_t n = colon ? (size_t)(colon - text) : strlen(text);
  const char *name = str_copy_n(a, text, n);
  for (int i = 0; i < N_CLUSTERS; i++) {
    bool measured;
    if (!names_row(name, &table[i], &measured)) continue;
    if (measured && table[i].half_efficiency <= 0) {
      int own = (int)strlen(table[i].name);
      diag_error(d, loc, "products of '%.*s' are not measured", own, name);
      diag_hint(d, "leave out -measured, for the peak speeds of '%.*s'", own, name);
      return NULL;
    }
    Cluster *c = arena_copy(a, &table[i], sizeof *c);
    c->name = str_copy(a, text);
    c->nodes = CLUSTER_UNSIZED / c->per_node; // unless a size follows
    if (!measured) c->half_efficiency = 0;
    // Measured steps have the collectives of NCCL, too.
    c->nccl = c->pat = measured;
    // NAME:NODESxPER_NODE overrides both numbers.
    if (colon && !read_sizes(colon + 1, c)) {
      diag_error(d, loc, "'%s' is no size of a cluster", colon + 1);
      diag_hint(d, "%s:NODESxPER_NODE, such as %s:4x8, with at most %d devices", name, name,
                CLUSTER_DEVICES);
      return NULL;
    }
    return c;
  }
  diag_error(d, loc, "there is no cluster '%s'", name);
  // The hint lists all rows of the table.
  StrBuf b = {.arena = a};
  for (int i = 0; i < N_CLUSTERS; i++) {
    char *row = arena_copy(a, table[i].name, strlen(table[i].name) + 1);
    for (char *p = row; *p; p++)
      if (*p == '_') *p = '-';
    strbuf_addf(&b, "%s%s", i ? ", " : "", row);
  }
  diag_hint(d, "there are %s; or a file, NAME.lua", b.at);
  return NULL;
}

const Cluster *cluster_read(Arena *a, const char *text, const char *option, Diag *d) {
  if (cluster_is_file(text)) return cluster_read_file(a, text, d);
  return cluster_read_named(a, text, loc_line(a, option, 0, 0), d);
}

// -- Properties of a cluster --------------------------------------------------------------------

// Interpolates between two measurements so that seconds are a power of flops: a product never takes
// longer than a larger one, as the measurements do not (cluster_file.c).
double device_speed(const Device *d, bool half, double flops) {
  // Without a known 16-bit peak, 16-bit arithmetic is assumed to run at the f32 peak.
  half &= d->half > 0;
  double peak = half ? d->half : d->f32, speed = 0, last_flops = 0;
  for (int i = 0; i < d->n_products; i++) {
    const ProductSpeed *p = &d->products[i];
    double here = half ? p->half : p->f32;
    if (here <= 0) continue;
    // The first of those that are at least as large, or the last.
    if (speed > 0 && flops > last_flops && flops < p->flops)
      speed *= pow(here / speed, log(flops / last_flops) / log(p->flops / last_flops));
    else if (speed <= 0 || flops >= p->flops)
      speed = here;
    if (flops <= p->flops) break;
    last_flops = p->flops;
  }
  if (speed > 0) return fmin(speed, peak);
  return half && d->half_efficiency > 0 ? peak * d->half_efficiency : peak;
}

double cluster_dollars(const Cluster *c) {
  double sum = 0;
  for (int i = 0; i < cluster_devices(c); i++)
    sum += cluster_device(c, i).dollars;
  return sum;
}

static Link faster(Link a, Link b) {
  return (Link){a.alpha < b.alpha ? a.alpha : b.alpha, a.beta < b.beta ? a.beta : b.beta};
}

Link cluster_fastest_inside(const Cluster *c) {
  Link least = *cluster_inside(c, 0);
  for (int i = 1; c->links_differ && i < cluster_devices(c); i++)
    least = faster(least, *cluster_inside(c, i));
  return least;
}

Link cluster_fastest_across(const Cluster *c) {
  Link least = *cluster_across(c, 0);
  for (int i = 1; c->links_differ && i < cluster_devices(c); i++)
    least = faster(least, *cluster_across(c, i));
  return least;
}

const Cluster *cluster_without_starts(Arena *a, const Cluster *c) {
  Cluster *out = arena_copy(a, c, sizeof *c);
  DeviceKind *kind = arena_array(a, DeviceKind, c->n_kinds);
  out->start = out->inside.alpha = out->across.alpha = 0;
  // Kinds of devices have links of their own.
  for (int i = 0; i < c->n_kinds; i++) {
    kind[i] = c->kind[i];
    kind[i].inside.alpha = kind[i].across.alpha = 0;
  }
  out->kind = kind;
  CollectiveWay *way = arena_array(a, CollectiveWay, c->n_collectives ? c->n_collectives : 1);
  for (int i = 0; i < c->n_collectives; i++) {
    way[i] = c->collectives[i];
    way[i].start = way[i].inside = way[i].across = 0;
  }
  out->collectives = way;
  return out;
}
